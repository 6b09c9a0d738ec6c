// A chart of points and lines that never uses the library: pointer and keys find points, a drag selects a part of a panel,
// and its image is the same drawing.

import { colours } from "../colours.js";
import { part } from "../frame.js";
import { follow, point } from "../opening.js";
import { completed } from "../plot.js";
import { walk } from "../walking.js";
import { draw } from "./drawing.js";
import { listen } from "./framing.js";
import { image } from "./image.js";
import { nearest } from "./points.js";
import { make } from "./svg.js";

// Maximum distance between the pointer and its point, in pixels.
const NEAR_PX = 20;
const RING_PX = 7;
// Distance between a point and its label, in pixels.
const AWAY_PX = 12;

export class OwnChart {
  #within;
  #drawing = null;
  // Highlights: the point at the pointer, the current selection.
  #marks = make("g", {});
  #tip;
  #pointer = null;

  // `framed(panel, [low, high])`: called with the index of the panel and the selected range of x.
  constructor(within, framed) {
    this.#within = within;
    const { body } = within.frame;
    this.#tip = part(body, "div", "chart-tip");
    this.#tip.hidden = true;
    body.classList.add("is-framed");
    listen(body, (left, top) => this.#panelAt(left, top), {
      framing: (panel, ends) => this.#frame(panel, ends),
      framed: ({ index, x }, ends) => framed(index, ends.map(x.back)),
    });
    body.addEventListener("pointermove", (event) => this.#moved(event));
    body.addEventListener("pointerleave", () => this.#left());
    body.addEventListener("click", (event) => this.#clicked(event));
    walk(within, () => this.#trials(), (found) => this.#show(found));
  }

  // Returns an image exporter.
  show(traces, wanted) {
    const { body } = this.#within.frame;
    const layout = completed(wanted);
    const svg = this.#drawing?.svg;
    this.#drawing = draw(body, traces, layout);
    if (svg) svg.replaceWith(this.#drawing.svg);
    else body.prepend(this.#drawing.svg);
    this.#drawing.svg.append(this.#marks);
    this.#show(null);
    if (this.#pointer) this.#point(...this.#pointer);
    return (format) => image(draw(body, traces, layout).svg, colours().panel, format);
  }

  // Panel by panel, from left to right.
  #trials() {
    const found = this.#drawing?.points.filter(({ trial }) => trial !== null) ?? [];
    return found.sort((one, other) => one.panel - other.panel || one.left - other.left);
  }

  #panelAt(left, top) {
    const isIn = (panel) => left >= panel.left && left <= panel.right && top >= panel.top && top <= panel.bottom;
    return this.#drawing?.panels.find(isIn);
  }

  // A drag selects, so it does not highlight points.
  #moved(event) {
    const { left, top } = this.#within.frame.body.getBoundingClientRect();
    this.#pointer = event.buttons || event.pointerType === "touch" ? null : [event.clientX - left, event.clientY - top];
    if (this.#pointer) this.#point(...this.#pointer);
  }

  #left() {
    this.#pointer = null;
    this.#show(null);
    point(this.#within.figure, null);
  }

  #point(left, top) {
    const found = nearest(this.#drawing?.points ?? [], left, top, NEAR_PX);
    this.#show(found);
    point(this.#within.figure, found?.trial ?? null);
  }

  #clicked(event) {
    const { figure, frame, state } = this.#within;
    const { left, top } = frame.body.getBoundingClientRect();
    const found = nearest(this.#trials(), event.clientX - left, event.clientY - top, NEAR_PX);
    if (found) follow(figure, state, found.trial, event);
  }

  #show(found) {
    this.#tip.hidden = found === null;
    if (!found) return this.#mark([]);
    const look = { r: RING_PX, fill: "none", stroke: colours().fg };
    this.#mark([make("circle", { cx: found.left, cy: found.top, ...look })]);
    this.#tip.replaceChildren(...found.words.map(line));
    const { clientWidth } = this.#within.frame.body;
    const isRight = found.left > clientWidth / 2;
    this.#tip.style.left = isRight ? "auto" : `${found.left + AWAY_PX}px`;
    this.#tip.style.right = isRight ? `${clientWidth - found.left + AWAY_PX}px` : "auto";
    this.#tip.style.top = `${Math.max(found.top - AWAY_PX, 0)}px`;
  }

  #frame({ top, bottom }, ends) {
    this.#show(null);
    if (!ends) return;
    const { accent } = colours();
    const place = { x: ends[0], y: top, width: ends[1] - ends[0], height: bottom - top };
    this.#mark([make("rect", { ...place, fill: accent, "fill-opacity": 0.2, stroke: accent })]);
  }

  #mark(parts) {
    this.#marks.replaceChildren(...parts);
  }
}

function line(text) {
  return Object.assign(document.createElement("div"), { textContent: text });
}
