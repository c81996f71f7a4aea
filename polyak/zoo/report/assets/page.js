"use strict";
// Draws the chosen curves of every environment, and on a live page asks for new ones.
const find = name => document.getElementById(name);
let {figures, live} = JSON.parse(find("data").textContent);

function draw() {
  const select = find("figure"), chosen = select.value, ink = getComputedStyle(document.body).color;
  select.replaceChildren(...figures.map(figure => new Option(figure.name, figure.name, false, figure.name === chosen)));
  const figure = figures.find(one => one.name === select.value);
  const panels = figure ? figure.panels : [];
  while (find("charts").children.length > panels.length) find("charts").lastChild.remove();
  panels.forEach(({env, data, remarks}, i) => {
    const card = find("charts").children[i] || find("charts").appendChild(document.createElement("figure"));
    if (!card.children.length) card.append(document.createElement("div"), document.createElement("figcaption"));
    card.lastChild.textContent = remarks.join(" ");
    Plotly.react(card.firstChild, data, {
      title: {text: env.replace(/</g, "&lt;"), font: {size: 15}}, font: {color: ink}, uirevision: `${figure.name} ${env}`,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: {l: 55, r: 15, t: 40, b: 40},
      xaxis: {title: {text: figure.x}, gridcolor: "#8884"}, yaxis: {gridcolor: "#8884"}, legend: {orientation: "h", y: -0.2},
    }, {responsive: true, displaylogo: false, displayModeBar: innerWidth < 600 ? false : "hover"});  // it covers the title
  });
}

find("figure").addEventListener("change", draw);
draw();
if (live) {
  let shown = "";
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const answer = await (await fetch("data.json", {cache: "no-cache", signal: AbortSignal.timeout(30000)})).text();
      find("notice").hidden = true;
      if (answer === shown) return;
      shown = answer;
      const fresh = JSON.parse(answer);
      figures = fresh.figures;
      find("body").innerHTML = fresh.body;  // the server's own HTML, in which text from files is escaped
      draw();
    } catch {
      find("notice").hidden = false;
      find("notice").textContent = "The board does not answer. What is shown may be old.";
    }
  }, 5000);
}
