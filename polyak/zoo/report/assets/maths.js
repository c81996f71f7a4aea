// Numbers: smoothing, means over runs with their intervals, and how numbers are written.

const GRID = 150;

/** Mean of each value with those before it within `share` of the x axis, weighted by the rows behind each. */
function smooth(xs, ys, weights, share) {
  if (!share || xs.length < 3) return ys;
  const width = share * (xs[xs.length - 1] - xs[0]);
  const result = new Array(ys.length);
  let first = 0, total = 0, weight = 0;
  for (let i = 0; i < ys.length; i++) {
    if (ys[i] !== null) { total += ys[i] * weights[i]; weight += weights[i]; }
    while (xs[first] < xs[i] - width) {
      if (ys[first] !== null) { total -= ys[first] * weights[first]; weight -= weights[first]; }
      first++;
    }
    result[i] = ys[i] === null || weight <= 0 ? null : total / weight;
  }
  return result;
}

/** The curve without points that lack an x or a y. */
function known(xs, ys) {
  const keep = xs.map((x, i) => x !== null && ys[i] !== null);
  return {x: xs.filter((_, i) => keep[i]), y: ys.filter((_, i) => keep[i])};
}

/** Values of a curve at every x of a rising grid that lies within it. */
function interpolate(xs, ys, grid) {
  let i = 0;
  return grid.map(x => {
    while (i < xs.length - 2 && xs[i + 1] < x) i++;
    if (xs.length === 1 || xs[i + 1] <= xs[i]) return ys[Math.min(i + (x >= xs[i + 1] ? 1 : 0), ys.length - 1)];
    const part = Math.min(Math.max((x - xs[i]) / (xs[i + 1] - xs[i]), 0), 1);
    return ys[i] + part * (ys[i + 1] - ys[i]);
  });
}

/** Where to compare curves: at their own places if these are the same, otherwise evenly over what all of them cover. */
function commonGrid(curves) {
  const first = curves[0].x;
  if (curves.every(c => c.x.length === first.length && c.x.every((x, i) => x === first[i]))) return first;
  const low = Math.max(...curves.map(c => c.x[0]));
  const high = Math.min(...curves.map(c => c.x[c.x.length - 1]));
  if (!(low < high)) return low === high ? [low] : [];
  return Array.from({length: GRID}, (_, i) => low + (high - low) * i / (GRID - 1));
}

const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Ends of the interval of the mean, as polyak/evaluation/intervals.py has it: Student's t, corrected for skewness. */
function meanEnds(values) {
  const n = values.length, middle = mean(values);
  const moment = k => mean(values.map(v => (v - middle) ** k));
  const error = Math.sqrt(moment(2) / (n - 1));
  const skewness = n >= ENOUGH_FOR_SKEWNESS && error ? moment(3) / moment(2) ** 1.5 / Math.sqrt(n) : 0;
  const end = t => {
    const y = t - skewness / 6, root = Math.cbrt(1 + skewness * y);
    return middle - error * 3 * y / (1 + root + root * root);
  };
  const t = STUDENT[Math.min(n, STUDENT.length - 1)];
  return [Math.min(end(t), middle), Math.max(end(-t), middle)];
}

/** Lower and upper end of a band around the mean of `values`, one for each run. */
const BANDS = {
  interval: {title: "95 % interval", ends: meanEnds},
  error: {title: "standard error", ends: values => {
    const middle = mean(values);
    const error = Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1) / values.length);
    return [middle - error, middle + error];
  }},
  range: {title: "lowest to highest run", ends: values => [Math.min(...values), Math.max(...values)]},
  none: {title: "none", ends: null},
};

/** Mean over runs and its band, over what all of them cover. Curves: {x, y} without gaps. */
function meanOverRuns(curves, band) {
  const x = commonGrid(curves);
  const values = curves.map(c => interpolate(c.x, c.y, x));
  const at = x.map((_, i) => values.map(v => v[i]));
  const ends = curves.length > 1 && BANDS[band].ends ? at.map(BANDS[band].ends) : null;
  return {x, y: at.map(mean), low: ends && ends.map(e => e[0]), high: ends && ends.map(e => e[1])};
}

function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trimmed(value / 1e9, 3)}G`;
  if (size >= 1e6) return `${trimmed(value / 1e6, 3)}M`;
  if (size >= 1e4) return `${trimmed(value / 1e3, 3)}k`;
  return trimmed(value, 4);
}

function trimmed(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

const UNITS = [["days", 86400, 2 * 86400], ["hours", 3600, 2 * 3600], ["minutes", 60, 120], ["seconds", 1, 0]];

/** The unit in which so many seconds are best read: its name and its seconds. */
function timeUnit(seconds) {
  return UNITS.find(unit => seconds >= unit[2]);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [name, size] = timeUnit(seconds);
  return `${trimmed(seconds / size, 3)} ${{days: "d", hours: "h", minutes: "min", seconds: "s"}[name]}`;
}

function bytes(count) {
  return count >= 1048576 ? `${trimmed(count / 1048576, 3)} MB` : `${trimmed(Math.max(count / 1024, 0.1), 3)} kB`;
}

function dateOf(seconds) {
  if (seconds === null || !(Math.abs(seconds) < 8e12)) return "–";
  const two = n => String(n).padStart(2, "0");
  const d = new Date(seconds * 1000);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}`;
}
