"use strict";
// Each chart is drawn where it stands, one after the other so that the page can be read meanwhile.
const PANEL = 235; // least width of one panel and its axis, in pixels
const AXIS = 62;
const GAP = 24;

function fitted(spec, width) {
  if (!spec.facet) return spec;
  const most = Math.min(spec.columns || 1, Math.max(1, Math.floor(width / PANEL)));
  const own = spec.resolve?.scale?.y === "independent"; // an axis for each panel, or one on the left for all
  const panel = own ? width / most - AXIS : (width - AXIS) / most - GAP;
  return { ...spec, columns: most, spec: { ...spec.spec, width: Math.floor(panel) } };
}

async function draw(figure) {
  const { spec, csv, types } = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  const drawing = fitted(spec, plot.clientWidth);
  drawing.data = { values: csv, format: { type: "csv", parse: types } };
  plot.dataset.width = plot.clientWidth;
  await vegaEmbed(plot, drawing, { renderer: "svg", actions: false });
  plot.dataset.drawn = "yes";
  const link = figure.querySelector("a.csv");
  if (!link.href.startsWith("blob:")) link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
}

async function drawAll() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const plot = figure.querySelector(".plot");
    if (Number(plot.dataset.width) === plot.clientWidth) continue;
    await draw(figure);
    await new Promise((resolve) => setTimeout(resolve));
  }
  document.documentElement.dataset.drawn = "yes";
}

let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(drawAll, 250); });
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
drawAll();
