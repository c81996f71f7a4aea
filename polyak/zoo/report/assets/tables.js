// Everything but the curves: runs, settings, videos, times, machines, warnings, and what could not be read.

const MOST_COLUMNS = 16;
const PARTS = {
  collecting: "collecting: environments and actions",
  learning: "learning: batches and gradient steps",
  other: "other: evaluations, saving, callbacks",
};

const put = (section, element) => find(`#${section} .scroll`).replaceChildren(element);
const last = values => values.length ? values[values.length - 1] : null;
const evaluated = run => run.evaluation.measures && run.evaluation.measures.return ? run.evaluation.measures.return.mean : [];
const bestEvaluation = run => evaluated(run).reduce((best, v) => v !== null && (best === null || v > best) ? v : best, null);

function drawOverview(data, shown) {
  const count = key => new Set(shown.map(key)).size;
  const sum = key => shown.reduce((total, run) => total + run[key], 0);
  const running = shown.filter(run => run.state === "running").length;
  const facts = {
    "Runs": shown.length === data.runs.length ? String(shown.length) : `${shown.length} of ${data.runs.length}`,
    "Running": running ? String(running) : null,
    "Algorithms": String(count(run => run.algo)),
    "Environments": String(count(run => run.env)),
    "Steps": shortNumber(sum("steps")),
    "Episodes": shortNumber(sum("episodes")),
    "Time of training": duration(sum("seconds")),
  };
  find("#overview").replaceChildren(...Object.entries(facts).filter(([, value]) => value !== null)
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function drawRuns(runs, isShown, styleOfRun, toggle) {
  const number = (title, of, show = shortNumber, kind = "number") => ({title, of, kind, show: run => show(of(run))});
  const columns = [
    {title: "Run", of: run => run.name, kind: "keeps", show: run => make("label", {class: "run-name"},
      make("input", {type: "checkbox", checked: isShown(run), onchange: () => toggle(run)}), lineKey(styleOfRun(run)),
      make("span", {class: "words"}, run.name, run.group === run.algo ? null : make("small", {class: "quiet wide"}, run.group)))},
    number("Seed", run => run.seed, v => v === null ? "–" : String(v), "number wide"),
    {title: "State", of: run => run.state, kind: "wide", show: run => make("span", {class: `state ${run.state}`, title: run.description}, run.state)},
    number("Steps", run => run.steps),
    number("Episodes", run => run.episodes, shortNumber, "number wide"),
    number("Return", run => run.last_return),
    number("Best evaluation", bestEvaluation, shortNumber, "number wide"),
    number("Last evaluation", run => last(evaluated(run)), shortNumber, "number wide"),
    number("Time", run => run.seconds || null, duration, "number wide"),
    number("Steps/s", run => run.seconds ? run.steps / run.seconds : null, shortNumber, "number wide"),
    number("Started", run => run.started, dateOf, "number wide"),
  ];
  put("runs", sortable("runs", columns, runs, run => isShown(run) ? "" : "off"));
}

/** Values of one setting in a group, those of its runs; null where no run has it. */
function valuesOf(members, name) {
  const values = [...new Set(members.map(run => run.settings[name]).filter(value => value !== undefined))];
  if (!values.length) return null;
  const shown = values.slice(0, 6).join(" | ");
  return values.length > 6 ? `${shown} | … (${values.length} values)` : shown;
}

function drawSettings(shown, onlyDiffering) {
  const all = [...grouped(shown, run => `${run.env}\u0000${run.group}`).values()];
  const groups = all.slice(0, MOST_COLUMNS);
  const severalEnvs = new Set(shown.map(run => run.env)).size > 1;
  const given = name => name.startsWith("--");
  const names = [...new Set(shown.flatMap(run => Object.keys(run.settings)))].sort((a, b) => given(a) - given(b));
  const rows = names.map(name => ({name, values: groups.map(members => valuesOf(members, name))}))
    .filter(row => !onlyDiffering || new Set(row.values).size > 1);
  const note = [];
  if (!names.length) note.push("These runs have no config.yml or args.yml.");
  else if (!rows.length) note.push(groups.length > 1 ? "The groups shown have the same settings." : "One group is shown: there is nothing to compare it with.");
  if (all.length > groups.length) note.push(`${groups.length} of ${all.length} groups fit; filter for others.`);
  if (rows.some(row => given(row.name))) note.push("Names that begin with -- were given on the command line.");
  find("#settings-note").textContent = note.join(" ");
  find("#settings .scroll").hidden = !rows.length;
  const columns = [
    {title: "Setting", of: row => row.name, kind: "code"},
    ...groups.map((members, i) => ({
      title: severalEnvs ? `${members[0].group}, ${members[0].env}` : members[0].group,
      of: row => row.values[i], kind: "code free",
    })),
  ];
  put("settings", sortable("settings", columns, rows));
}

const players = new Map();

function drawFilms(data, shownIds, nameOf) {
  const films = data.films.filter(film => shownIds.has(film.run));
  const embedded = films.filter(film => film.src), leftOut = films.filter(film => !film.src);
  const figures = embedded.map(film => {
    const key = `${film.id} ${film.src.length}`;
    if (!players.has(key)) {
      const title = `${nameOf(film.run)}, ${film.name}`;
      const picture = film.kind === "gif" ? make("img", {src: film.src, alt: title, loading: "lazy"})
        : make("video", {src: film.src, controls: true, loop: true, muted: true, playsinline: true, preload: "metadata", "aria-label": title});
      players.set(key, make("figure", {}, picture, make("figcaption", {}, nameOf(film.run),
        make("div", {class: "quiet"}, `${film.name}, ${bytes(film.bytes)}`))));
    }
    return players.get(key);
  });
  const place = find("#films .films");
  // A player that is moved in the page stops playing.
  if (place.children.length !== figures.length || figures.some((figure, i) => place.children[i] !== figure)) place.replaceChildren(...figures);
  find("#films .left-out").replaceChildren(...(leftOut.length ? [make("details", {open: !embedded.length},
    make("summary", {}, `${leftOut.length} left out: more than ${bytes(data.video_limit)} in all (--video-limit)`),
    make("ul", {}, leftOut.map(film => make("li", {class: "quiet"}, `${nameOf(film.run)}/${film.name}, ${bytes(film.bytes)}`))))] : []));
  find("#films").hidden = !films.length;
}

function drawTimes(shown) {
  const runs = shown.filter(run => Object.keys(run.time).length);
  find("#time").hidden = !runs.length;
  if (!runs.length) return;
  find("#time .legend").replaceChildren(...Object.entries(PARTS).map(([part, title]) => make("span", {class: `part-${part}`}, title)));
  const total = run => Object.values(run.time).reduce((sum, seconds) => sum + seconds, 0);
  const share = (run, part) => total(run) > 0 ? run.time[part] / total(run) : 0;
  const bar = run => make("div", {class: "bar", role: "img", "aria-label": Object.keys(PARTS)
    .map(part => `${part} ${Math.round(100 * share(run, part))} %`).join(", ")},
    Object.keys(PARTS).map(part => { const piece = make("i", {class: `part-${part}`}); piece.style.width = `${100 * share(run, part)}%`; return piece; }));
  put("time", sortable("time", [
    {title: "Run", of: run => run.name, kind: "words"},
    {title: "Share", of: run => share(run, "learning"), show: bar},
    ...Object.keys(PARTS).map(part => ({title: part[0].toUpperCase() + part.slice(1), of: run => run.time[part], kind: "number wide",
      show: run => `${duration(run.time[part])} (${Math.round(100 * share(run, part))} %)`})),
    {title: "In all", of: total, kind: "number", show: run => duration(total(run))},
  ], runs));
}

function drawSystems(shown) {
  const runs = shown.filter(run => Object.keys(run.system).length);
  find("#system").hidden = !runs.length;
  const systems = [...grouped(runs, run => JSON.stringify(run.system)).values()];
  const names = [...new Set(runs.flatMap(run => Object.keys(run.system)))];
  put("system", sortable("system", [
    {title: "", of: row => row.name},
    ...systems.map((members, i) => ({title: systems.length > 1 ? `${members.length} runs` : members.length > 1 ? `All ${members.length} runs` : members[0].name, of: row => row.values[i] ?? null, kind: "free"})),
  ], names.map(name => ({name, values: systems.map(members => members[0].system[name])}))));
}

function drawWarnings(shown) {
  const met = new Map();
  shown.forEach(run => run.warnings.forEach(text => met.set(text, [...(met.get(text) || []), run.name])));
  find("#warnings").hidden = !met.size;
  put("warnings", sortable("warnings", [
    {title: "Warning", of: row => row.text, kind: "words"},
    {title: "Runs", of: row => row.runs.length, kind: "words", show: row => row.runs.length > 4 ? `${row.runs.length} runs` : row.runs.join(", ")},
  ], [...met].map(([text, runs]) => ({text, runs}))));
}

function drawProblems(problems) {
  find("#problems").hidden = !problems.length;
  put("problems", sortable("problems", [
    {title: "File", of: row => row.file, kind: "code"},
    {title: "Why", of: row => row.reason, kind: "words"},
  ], problems));
}
