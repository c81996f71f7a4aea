// The page: what was chosen, and drawing it again when that or the data changes.

const REFRESH = 5000;
let data = JSON.parse(find("#data").textContent);
let groupStyles = new Map();
const hidden = new Set();
const choice = {source: "", measure: "", x: "steps", view: "mean", band: "interval", smooth: 5, algo: "", env: "", text: "", onlyDiffering: true};

function takeIn(fresh) {
  data = fresh;
  groupStyles = new Map([...new Set(data.runs.map(run => run.group))].map((group, i) => [group, styleOf(i)]));
  for (const members of grouped(data.runs, run => run.env).values()) members.forEach((run, i) => { run.style = styleOf(i); });
  data.runs.forEach(run => {
    const settings = Object.entries(run.settings).map(([name, value]) => `${name}=${value}`);
    run.haystack = [run.name, run.algo, run.env, run.group, run.state, ...settings].join(" ").toLowerCase();
  });
}

const matching = () => {
  const words = choice.text.toLowerCase().split(/\s+/).filter(Boolean);
  return data.runs.filter(run => (!choice.algo || run.algo === choice.algo) && (!choice.env || run.env === choice.env)
    && words.every(word => run.haystack.includes(word)));
};

const titled = values => [...new Set(values)].sort().map(value => [value, value]);

function drawControls(runs) {
  choice.algo = fill(find("#algo"), [["", "all"], ...titled(data.runs.map(run => run.algo))], choice.algo);
  choice.env = fill(find("#env"), [["", "all"], ...titled(data.runs.map(run => run.env))], choice.env);
  const sources = Object.keys(SOURCES).filter(source => data.runs.some(run => run[source].measures));
  choice.source = fill(find("#source"), sources.map(source => [source, SOURCES[source]]), choice.source);
  const measures = [...new Set(runs.flatMap(run => Object.keys((run[choice.source] || {}).measures || {})))];
  choice.measure = fill(find("#measure"), measures.map(name => [name, MEASURES[name] || name]), choice.measure);
  fill(find("#band"), Object.entries(BANDS).map(([name, band]) => [name, band.title]), choice.band);
  find("#band-label").hidden = choice.view !== "mean";
  find("#smooth").disabled = choice.source === "evaluation";
  find("#smooth-value").textContent = choice.source === "evaluation" ? "none" : `${choice.smooth} %`;
}

function drawGroups(runs) {
  find("#groups").replaceChildren(...[...grouped(runs, run => run.group)].map(([group, members]) => {
    const isOn = members.some(run => !hidden.has(run.id));
    const click = () => { members.forEach(run => isOn ? hidden.add(run.id) : hidden.delete(run.id)); draw(); };
    const n = members.filter(run => !hidden.has(run.id)).length;
    const count = n === members.length || !n ? String(members.length) : `${n} of ${members.length}`;
    return make("button", {type: "button", class: "chip", "aria-pressed": String(isOn), onclick: click},
      lineKey(groupStyles.get(group)), make("span", {}, group, " ", make("small", {}, count)));
  }));
}

function drawCurves() {
  const shown = matching().filter(run => !hidden.has(run.id));
  drawCharts(find("#charts"), shown, choice, groupStyles);
}

function draw() {
  const runs = matching();
  const shown = runs.filter(run => !hidden.has(run.id));
  const names = new Map(data.runs.map(run => [run.id, run.name]));
  drawControls(runs);
  drawOverview(data, shown);
  drawGroups(runs);
  drawRuns(runs, run => !hidden.has(run.id), run => choice.view === "runs" ? run.style : groupStyles.get(run.group),
    run => { hidden.has(run.id) ? hidden.delete(run.id) : hidden.add(run.id); draw(); });
  drawSettings(shown, choice.onlyDiffering);
  drawFilms(data, new Set(shown.map(run => run.id)), id => names.get(id));
  drawTimes(shown);
  drawSystems(shown);
  drawWarnings(shown);
  drawProblems(data.problems);
  drawCurves();
}

function listen() {
  for (const name of ["algo", "env", "source", "measure", "x", "view", "band"]) {
    find(`#${name}`).addEventListener("change", event => { choice[name] = event.target.value; draw(); });
  }
  find("#text").addEventListener("input", event => { choice.text = event.target.value; draw(); });
  find("#smooth").addEventListener("input", event => {
    choice.smooth = Number(event.target.value);
    find("#smooth-value").textContent = `${choice.smooth} %`;
    requestAnimationFrame(drawCurves);
  });
  find("#only-differing").addEventListener("change", event => { choice.onlyDiffering = event.target.checked; draw(); });
  find("#everything").addEventListener("click", () => {
    hidden.clear();
    Object.assign(choice, {algo: "", env: "", text: ""});
    find("#text").value = "";
    draw();
  });
  document.querySelectorAll("form").forEach(form => form.addEventListener("submit", event => event.preventDefault()));
}

/** Light or dark: as the system says, until the button is pressed. */
function startTheme() {
  const root = document.documentElement, button = find("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem("polyak-theme"); } catch { return null; } };
  const apply = theme => { root.dataset.theme = theme; button.textContent = theme === "dark" ? "Light" : "Dark"; };
  apply(remembered() || (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!remembered()) { apply(system.matches ? "dark" : "light"); drawCurves(); } });
  button.addEventListener("click", () => {
    apply(root.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("polyak-theme", root.dataset.theme); } catch { /* a page from a file may not remember */ }
    drawCurves();
  });
}

/** Ask the server again and again; what it has not changed it does not send. */
function follow(tag) {
  let since = new Date();
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch("data.json", {cache: "no-cache", signal: AbortSignal.timeout(30000)});
      if (!answer.ok) throw new Error(String(answer.status));
      if (answer.headers.get("ETag") !== tag) {
        tag = answer.headers.get("ETag");
        takeIn(await answer.json());
        draw();
      }
      since = new Date();
      find("#notice").hidden = true;
    } catch {
      find("#notice").textContent = `The board does not answer. This is how things were at ${since.toLocaleTimeString()}.`;
      find("#notice").hidden = false;
    }
  }, REFRESH);
}

const {live, tag, made, polyak} = data;
find("#about").textContent = live ? `${data.logs}, live` : `${data.logs}, ${made}`;
find("#made").textContent = `polyak ${polyak}. Curves of long runs are drawn from a few hundred means; "return" in the table is the mean of the last 100 episodes.`;
takeIn(data);
startTheme();
listen();
draw();
if (live) follow(tag);
