// The frame of a chart: title, "showing x of y", buttons for CSV, PNG and SVG, the message of an empty chart, and its data
// as a table.

import { csv, fill } from "./data_table.js";

export class Frame {
  #figure;
  #table = null;
  #exporter = null;

  constructor(figure) {
    this.#figure = figure;
    this.title = part(figure, "span", "chart-title", figure.querySelector("figcaption"));
    this.count = part(figure, "span", "chart-count", figure.querySelector("figcaption"));
    this.tools = part(figure, "span", "chart-tools", figure.querySelector("figcaption"));
    this.body = part(figure, "div", "chart-body");
    this.words = part(figure, "p", "chart-words");
    this.data = part(figure, "details", "chart-data");
    this.spoken = part(figure, "p", "hidden");
    this.spoken.setAttribute("aria-live", "polite");
    this.words.setAttribute("role", "status");
    this.#listed();
    this.#buttons();
  }

  // Replaces the chart by a message.
  say(text) {
    this.words.textContent = text;
    this.#figure.classList.toggle("is-empty", text !== "");
  }

  // Shows an error below the last chart.
  warn(text) {
    this.words.textContent = text;
  }

  // 0: not waiting; 1: shows that it waits; 2: also says for what.
  wait(level, what) {
    this.#figure.classList.toggle("is-waiting", level > 0);
    this.body.setAttribute("aria-busy", String(level > 0));
    this.#figure.dataset.waits = level > 1 ? `waiting for ${what}` : "";
  }

  // `columns`: names; "trial" becomes links. `rows`: arrays of values.
  show({ title, count, columns, rows, exporter }) {
    this.title.textContent = title;
    this.count.textContent = count;
    this.body.setAttribute("aria-label", `${title}. ${count}`);
    this.#table = { columns, rows };
    this.#exporter = exporter;
    if (this.data.open) this.#fill();
  }

  download(name, blob) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  #listed() {
    const summary = part(this.data, "summary", "chart-summary");
    summary.textContent = "Data as a table";
    this.data.addEventListener("toggle", () => this.data.open && this.#fill());
  }

  #fill() {
    const place = part(this.data, "div", "scroll");
    place.tabIndex = 0;
    place.setAttribute("role", "region");
    place.setAttribute("aria-label", `Data of: ${this.title.textContent}`);
    if (this.#table) fill(place, this.#table, this.#figure);
  }

  #buttons() {
    if (this.tools.childElementCount) return;
    for (const kind of ["CSV", "PNG", "SVG"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.setAttribute("aria-label", `Download as ${kind}: ${this.title.textContent}`);
      button.addEventListener("click", () => this.#save(kind.toLowerCase()));
      this.tools.append(button);
    }
  }

  async #save(kind) {
    if (!this.#table) return;
    const name = `${this.#figure.dataset.experiment}-${this.#figure.dataset.chart}.${kind}`;
    if (kind === "csv") return this.download(name, new Blob([csv(this.#table)], { type: "text/csv;charset=utf-8" }));
    const blob = await this.#exporter?.(kind);
    if (blob) this.download(name, blob);
  }
}

// The part of a figure with this class; created if it does not exist.
export function part(parent, tag, name, within = parent) {
  const found = parent.querySelector(`.${name}`);
  if (found) return found;
  const made = document.createElement(tag);
  made.className = name;
  (within ?? parent).append(made);
  return made;
}
