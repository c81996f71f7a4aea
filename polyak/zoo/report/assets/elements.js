// Elements of the page. Whatever comes from a file is put into them as text, never as HTML.

const find = selector => document.querySelector(selector);

/** Make an element: attributes and `on...` handlers in an object, then children, strings among them as text. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

/** The line that stands for a curve: its colour and dashes. */
function lineKey(style) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "key");
  svg.setAttribute("viewBox", "0 0 26 10");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(space, "line");
  for (const [name, value] of Object.entries({x1: 0, y1: 5, x2: 26, y2: 5})) line.setAttribute(name, value);
  line.style.stroke = `var(--c${style.colour})`;
  line.style.strokeDasharray = {solid: "none", dash: "7 3", dot: "2 3", dashdot: "7 3 2 3"}[style.dash];
  svg.append(line);
  return svg;
}

/** Fill a select with [value, title] pairs; keep what was chosen if it is still there. */
function fill(select, choices, chosen) {
  const wanted = choices.some(([value]) => value === chosen) ? chosen : choices.length ? choices[0][0] : "";
  const now = JSON.stringify(choices);
  if (select.dataset.choices !== now) {
    select.replaceChildren(...choices.map(([value, title]) => make("option", {value}, title)));
    select.dataset.choices = now;
  }
  select.value = wanted;
  return wanted;
}

const orders = new Map();

/**
 * A table that sorts by any column: click its title. Columns: {title, of: row => value to sort by, show: row => what is
 * shown, kind: class}. The order chosen survives when the table is made again under the same name.
 */
function sortable(name, columns, rows, rowClass) {
  const body = make("tbody");
  const heads = columns.map((column, i) => make("th", {class: column.kind, scope: "col"},
    make("button", {type: "button", class: "sort", onclick: () => {
      const order = orders.get(name);
      orders.set(name, {column: i, down: order && order.column === i ? !order.down : (column.kind || "").startsWith("number")});
      refresh();
    }}, column.title)));
  const compare = (a, b) => {
    if (a === null || a === undefined || b === null || b === undefined) return (b !== null && b !== undefined) - (a !== null && a !== undefined);
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, {numeric: true});
  };
  function refresh() {
    const order = orders.get(name);
    heads.forEach((head, i) => {
      if (order && order.column === i) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const sorted = rows.slice();
    if (order) {
      const of = columns[order.column].of;
      sorted.sort((a, b) => {
        const [x, y] = [of(a), of(b)];
        const lacks = v => v === null || v === undefined;
        return lacks(x) || lacks(y) ? compare(x, y) : order.down ? -compare(x, y) : compare(x, y);
      });
    }
    body.replaceChildren(...sorted.map(row => make("tr", {class: rowClass ? rowClass(row) : null}, columns.map(column =>
      make("td", {class: column.kind}, column.show ? column.show(row) : column.of(row) ?? "–")))));
  }
  refresh();
  return make("table", {}, make("thead", {}, make("tr", {}, heads)), body);
}
