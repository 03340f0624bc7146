"use strict";
// Draws the charts one after the other, so that the page stays responsive.
const MIN_PANEL_WIDTH = 235; // one panel with its axis, in pixels
const AXIS_WIDTH = 62;
const GAP = 24;
const CHARACTER_WIDTH = 6.5; // of the line above a chart, in pixels

// Fits the panels of a chart to the width of the page.
function fitToWidth(spec, width) {
  if (!spec.facet) return spec;
  const columns = Math.min(spec.columns || 1, Math.max(1, Math.floor(width / MIN_PANEL_WIDTH)));
  const hasOwnAxes = spec.resolve?.scale?.y === "independent"; // else one axis on the left for all panels
  const panelWidth = hasOwnAxes ? width / columns - AXIS_WIDTH : (width - AXIS_WIDTH) / columns - GAP;
  return { ...spec, columns, spec: { ...spec.spec, width: Math.floor(panelWidth) } };
}

// Breaks the line above a chart into lines that fit the width of the page.
function wrap(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length * CHARACTER_WIDTH <= width || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

async function draw(figure) {
  const { spec, csv, types } = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  const fittedSpec = fitToWidth(spec, plot.clientWidth);
  if (typeof spec.title === "string") fittedSpec.title = wrap(spec.title, plot.clientWidth - GAP);
  fittedSpec.data = { values: csv, format: { type: "csv", parse: types } };
  plot.dataset.width = plot.clientWidth;
  await vegaEmbed(plot, fittedSpec, { renderer: "svg", actions: false });
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

let resizeTimer;
addEventListener("resize", () => { clearTimeout(resizeTimer); resizeTimer = setTimeout(drawAll, 250); });
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
drawAll();
