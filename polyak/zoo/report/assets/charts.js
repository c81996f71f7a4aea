// Learning curves: one chart for each environment.

const COLOURS = 7;
const DASHES = ["solid", "dash", "dot", "dashdot"];
const styleOf = index => ({colour: index % COLOURS, dash: DASHES[Math.floor(index / COLOURS) % DASHES.length]});
const SOURCES = {training: "training episodes", evaluation: "evaluations", logged: "logged values"};
const MEASURES = {return: "return", length: "episode length", success: "success rate"};
const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** plotly reads a little HTML in names; what comes from files must not be any. */
const harmless = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");

/** The curve of one run, without gaps: {x, y, low, high}. */
function runCurve(run, choice) {
  const from = run[choice.source];
  const values = from.measures && from.measures[choice.measure];
  if (!values) return null;
  const xs = from[choice.x];
  const weights = from.count || xs.map(() => 1);
  const share = choice.source === "evaluation" ? 0 : choice.smooth / 100;
  const curve = known(xs, smooth(xs, values.mean, weights, share));
  if (!curve.x.length) return null;
  if (values.low) {
    curve.low = known(xs, values.low);
    curve.high = known(xs, values.high);
  }
  return curve;
}

/** What to draw for the runs of one environment: lines with names, styles and bands, and remarks about them. */
function linesOf(runs, choice, groupStyles) {
  const lines = [], remarks = [];
  if (choice.view === "runs") {
    runs.forEach(run => {
      const curve = runCurve(run, choice);
      if (curve) lines.push({...curve, name: run.name, style: run.style, low: null, high: null, extremes: curve});
    });
    if (lines.length > 3) lines.forEach(line => { line.extremes = null; });
    return {lines, remarks};
  }
  for (const [group, members] of grouped(runs, run => run.group)) {
    const drawn = members.filter(run => runCurve(run, choice) !== null);
    if (!drawn.length) continue;
    const whole = drawn.filter(run => !run.left_out);
    const without = whole.length ? drawn.filter(run => run.left_out) : [];
    if (without.length) remarks.push(`${group}: the mean is without ${without.map(run => `${run.name} (${run.left_out})`).join(", ")}.`);
    const curves = (whole.length ? whole : drawn).map(run => runCurve(run, choice));
    const line = meanOverRuns(curves, choice.band);
    if (!line.x.length) {
      remarks.push(`${group}: its runs have no stretch in common; draw every run instead.`);
      continue;
    }
    const furthest = Math.max(...curves.map(curve => curve.x[curve.x.length - 1]));
    const end = line.x[line.x.length - 1];
    if (end < 0.95 * furthest) {
      const told = choice.x === "steps" ? v => `${shortNumber(v)} steps` : duration;
      remarks.push(`${group}: drawn to ${told(end)}, which all ${curves.length} runs reached (the longest ${told(furthest)}).`);
    }
    lines.push({...line, name: `${group} (${curves.length})`, style: groupStyles.get(group)});
  }
  return {lines, remarks};
}

function grouped(items, key) {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(key(item))) groups.set(key(item), []);
    groups.get(key(item)).push(item);
  }
  return groups;
}

function tracesOf(line, scale) {
  const colour = colourOf(`--c${line.style.colour}`);
  const scaled = xs => xs.map(x => x / scale);
  const edge = {type: "scatter", mode: "lines", line: {width: 0}, hoverinfo: "skip", showlegend: false, legendgroup: "band"};
  const traces = [];
  const band = (low, high, opacity) => traces.push(
    {...edge, x: scaled(low.x), y: low.y},
    {...edge, x: scaled(high.x), y: high.y, fill: "tonexty", fillcolor: faint(colour, opacity)});
  if (line.low) band({x: line.x, y: line.low}, {x: line.x, y: line.high}, 0.2);
  if (line.extremes && line.extremes.low) band(line.extremes.low, line.extremes.high, 0.13);
  traces.push({
    type: "scatter", x: scaled(line.x), y: line.y, name: harmless(line.name), showlegend: false,
    mode: line.x.length > 1 ? "lines" : "markers", line: {color: colour, width: 2.2, dash: line.style.dash},
    marker: {color: colour, size: 7}, hovertemplate: "%{y:.4~g}",
  });
  return traces;
}

function faint(hex, opacity) {
  const parts = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${parts.join(",")},${opacity})`;
}

function layoutOf(xTitle, steps) {
  const [ink, quiet, grid, card, line] = ["--ink", "--quiet", "--grid", "--card", "--line"].map(colourOf);
  const axis = {gridcolor: grid, linecolor: line, zeroline: false, tickfont: {color: quiet, size: 12}, automargin: true, fixedrange: false};
  const touch = matchMedia("(pointer: coarse)").matches;
  return {
    autosize: true, margin: {l: 48, r: 12, t: 8, b: 42}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", color: ink, size: 13},
    xaxis: {...axis, title: {text: xTitle, font: {size: 12, color: quiet}, standoff: 8}, showline: true, rangemode: "tozero", hoverformat: ".5~s", tickformat: steps ? "~s" : ""},
    yaxis: {...axis, nticks: 7},
    hovermode: "x unified", hoverlabel: {bgcolor: card, bordercolor: line, font: {color: ink, size: 12}, namelength: -1},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: ink},
    dragmode: touch ? false : "zoom",
  };
}

const PLOTLY = {displaylogo: false, displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
const cards = new Map();
const fitting = new ResizeObserver(entries => entries.forEach(({target}) => {
  if (target.layout && target.clientWidth) Plotly.Plots.resize(target);
}));

/** Draw the chosen values of the runs shown, a card for each environment; keeps cards that are there already. */
function drawCharts(container, runs, choice, groupStyles) {
  const wanted = [];
  for (const [env, members] of grouped(runs, run => run.env)) {
    const {lines, remarks} = linesOf(members, choice, groupStyles);
    if (lines.length) wanted.push({env, lines, remarks});
  }
  for (const [env, card] of cards) {
    if (!wanted.some(item => item.env === env)) {
      fitting.unobserve(card.chart);
      Plotly.purge(card.chart);
      card.element.remove();
      cards.delete(env);
    }
  }
  container.querySelector(".empty")?.remove();
  if (!wanted.length) container.append(make("p", {class: "empty"}, "Nothing to draw: the runs shown have no such values."));
  for (const {env} of wanted) {  // all of them first: a chart takes the width that its card has when it is drawn
    if (!cards.has(env)) {
      const chart = make("div", {class: "chart"}), note = make("p", {class: "quiet"});
      cards.set(env, {chart, note, element: make("div", {class: "card"}, make("h3", {}, env), chart, note)});
    }
    container.append(cards.get(env).element);
  }
  for (const {env, lines, remarks} of wanted) {
    const {chart, note} = cards.get(env);
    const ends = lines.map(line => line.x[line.x.length - 1]);
    const [unit, scale] = choice.x === "steps" ? ["environment steps", 1] : timeUnit(Math.max(...ends));
    Plotly.react(chart, lines.flatMap(line => tracesOf(line, scale)), layoutOf(unit, choice.x === "steps"), PLOTLY);
    fitting.observe(chart);
    note.textContent = remarks.join(" ");
    note.hidden = !remarks.length;
  }
}
