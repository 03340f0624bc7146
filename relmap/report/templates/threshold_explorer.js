"use strict";
// Shows results at a threshold that the reader sets, or at the threshold with the lowest expected cost. All numbers
// come from the counts in the JSON of the section. Text is set as textContent, so that label names cannot become markup.
(() => {
  const element = (name) => document.getElementById(`explorer-${name}`);
  const explorer = document.getElementById("threshold-explorer");
  const data = JSON.parse(explorer.querySelector("script").textContent);
  const { thresholds, lines } = data;
  const slider = element("slider");
  const number = element("threshold");
  const costInputs = { error: element("cost-error"), review: element("cost-review") };
  const modes = [...explorer.querySelectorAll("input[name='explorer-mode']")];
  const NONE = "–";
  const RELATIVE_TOLERANCE = 1e-12; // costs with a smaller relative difference are equal
  let selected = data.initial;

  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  const count = (rows) => rows.toLocaleString("en-US");
  const toFourDigits = (value) => String(Number(value.toPrecision(4)));

  function expectedCost(line, index, costs) {
    const errors = line.automatic[index] - line.correct[index];
    const reviews = line.total - line.automatic[index];
    return (costs.error * errors + costs.review * reviews) / line.total;
  }

  // Returns the index of the threshold with the lowest expected cost. If costs are equal, this is the lowest threshold,
  // which has the most automatic rows.
  function cheapest(line, costs) {
    let best = 0;
    thresholds.forEach((threshold, index) => {
      const lowest = expectedCost(line, best, costs);
      if (expectedCost(line, index, costs) < lowest - RELATIVE_TOLERANCE * Math.abs(lowest)) best = index;
    });
    return best;
  }

  function nearest(value) {
    let best = 0;
    thresholds.forEach((threshold, index) => {
      if (Math.abs(threshold - value) < Math.abs(thresholds[best] - value)) best = index;
    });
    return best;
  }

  function readNumber(input, isValid) {
    const value = input.valueAsNumber;
    const valid = Number.isFinite(value) && isValid(value);
    input.setAttribute("aria-invalid", String(!valid));
    return valid ? value : null;
  }

  // Returns null if a cost is missing or out of range.
  function readCosts() {
    const error = readNumber(costInputs.error, (cost) => cost > 0);
    const review = readNumber(costInputs.review, (cost) => cost >= 0);
    return error === null || review === null ? null : { error, review };
  }

  const minimizesCost = () => modes.find((mode) => mode.checked).value === "costs";
  const automaticRows = (line, index) => (line.automatic_rows || line.automatic)[index];

  function interval(line, index) {
    return line.low[index] === null ? "" : `${percent(line.low[index])} to ${percent(line.high[index])}`;
  }

  function accuracy(line, index) {
    return line.automatic[index] === 0 ? NONE : percent(line.correct[index] / line.automatic[index]);
  }

  function cellsOf(line, index, costs) {
    return [
      { text: percent(line.automatic[index] / line.total) },
      { text: accuracy(line, index), detail: line.automatic[index] === 0 ? "" : interval(line, index) || "no interval" },
      { text: count(line.rows - automaticRows(line, index)), detail: `of ${count(line.rows)}` },
      { text: costs === null ? NONE : toFourDigits(expectedCost(line, index, costs)) },
    ];
  }

  function summary(line, index, costs) {
    const parts = [`Threshold ${thresholds[index]}: ${percent(line.automatic[index] / line.total)} of decisions are automatic`];
    if (line.automatic[index] > 0) {
      const ends = interval(line, index);
      const precision = ends ? `pointwise 95% interval ${ends}` : "too few rows or groups for an interval";
      parts.push(`${accuracy(line, index)} of them are correct (${precision})`);
    }
    parts.push(`${count(line.rows - automaticRows(line, index))} of ${count(line.rows)} rows go to review`);
    const sentence = `${parts.join("; ")}.`;
    if (costs === null) return `${sentence} For expected costs, enter a cost of an error above 0 and a cost of a review of at least 0.`;
    const withoutReview = toFourDigits(expectedCost(line, 0, costs));
    const cost = toFourDigits(expectedCost(line, index, costs));
    return `${sentence} Expected cost per decision: ${cost}; without review: ${withoutReview}; if every decision is reviewed: ${toFourDigits(costs.review)}.`;
  }

  function optimalForExactReliability(costs) {
    if (!minimizesCost() || costs === null) return "";
    const threshold = toFourDigits(Math.max(0, 1 - costs.review / costs.error));
    return `This threshold has the lowest expected cost on these rows. If the reliability is exact, the best threshold is ${threshold}: one minus the cost of a review divided by the cost of an error.`;
  }

  function addCell(row, tag) {
    const cell = document.createElement(tag);
    const detail = document.createElement("span");
    detail.className = "detail";
    cell.append(document.createElement("span"), " ", detail);
    row.append(cell);
    return cell;
  }

  function buildRows() {
    const body = element("table").tBodies[0];
    return lines.map((line) => {
      const row = body.insertRow();
      const heading = addCell(row, "th");
      heading.scope = "row";
      heading.firstChild.textContent = line.name;
      return [0, 1, 2, 3].map(() => addCell(row, "td"));
    });
  }

  const rows = buildRows();

  function showControls() {
    slider.disabled = minimizesCost();
    number.disabled = minimizesCost();
    slider.value = selected;
    slider.setAttribute("aria-valuetext", String(thresholds[selected]));
    if (document.activeElement !== number) number.value = thresholds[selected];
  }

  function showTable(costs) {
    lines.forEach((line, index) => {
      cellsOf(line, selected, costs).forEach((content, column) => {
        const cell = rows[index][column];
        cell.firstChild.textContent = content.text;
        cell.lastChild.textContent = content.detail || "";
      });
    });
  }

  function show() {
    const costs = readCosts();
    if (minimizesCost() && costs !== null) selected = cheapest(lines[0], costs);
    showControls();
    showTable(costs);
    element("summary").textContent = summary(lines[0], selected, costs);
    element("by-map").textContent = optimalForExactReliability(costs);
    const command = element("command");
    command.textContent = command.dataset.before + thresholds[selected];
    element("option").textContent = `--cut ${thresholds[selected]}`;
    element("copied").textContent = "";
  }

  function selectCommand() {
    const range = document.createRange();
    range.selectNodeContents(element("command"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    element("copied").textContent = "The command is selected; copy it with the keyboard or the menu.";
  }

  async function copyCommand() {
    if (!navigator.clipboard) {
      selectCommand();
      return;
    }
    try {
      await navigator.clipboard.writeText(element("command").textContent);
      element("copied").textContent = "Copied.";
    } catch {
      selectCommand(); // the browser denies access to the clipboard
    }
  }

  slider.max = thresholds.length - 1;
  slider.addEventListener("input", () => { selected = Number(slider.value); show(); });
  number.addEventListener("input", () => {
    const value = readNumber(number, (threshold) => threshold >= 0 && threshold <= 1);
    if (value !== null) { selected = nearest(value); show(); }
  });
  number.addEventListener("blur", () => { number.removeAttribute("aria-invalid"); show(); number.value = thresholds[selected]; });
  modes.forEach((mode) => mode.addEventListener("change", show));
  Object.values(costInputs).forEach((input) => input.addEventListener("input", show));
  element("copy").addEventListener("click", copyCommand);
  explorer.hidden = false;
  show();
})();
