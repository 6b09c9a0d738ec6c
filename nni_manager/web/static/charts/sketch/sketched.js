// A chart that we draw from the library's traces until the reader interacts with it, because the library needs one to two
// seconds of processor time to start. Interactions during that start are replayed afterwards.

import { follow } from "../opening.js";
import { plotly } from "../plot.js";
import { draw } from "./drawing.js";
import { nearest } from "./points.js";

// Time that the pointer must rest: a pointer that only passes does not count.
const REST_MS = 120;
// Keys that move along the points.
const KEYS = new Set(["ArrowRight", "ArrowLeft", "PageDown", "PageUp", "Enter", "p"]);
// Maximum distance between a click and its point, in pixels.
const NEAR_PX = 12;

const sketches = new WeakMap();

// Draws, or lets the library draw if the reader has interacted with the chart. `takeOver()` draws with the library. Both
// return an image exporter.
export function sketched(within, traces, layout, takeOver) {
  const sketch = sketches.get(within.figure) ?? new Sketch(within);
  sketches.set(within.figure, sketch);
  return sketch.show({ traces, layout, takeOver });
}

class Sketch {
  #within;
  #shown;
  #svg = document.createElement("div");
  #points = [];
  #taking = null;
  #isOver = false;
  #hasFailed = false;
  #pointer = null;
  #keys = [];
  #ends = new AbortController();

  constructor(within) {
    this.#within = within;
    const { body } = within.frame;
    const on = (name, act) => body.addEventListener(name, act, { signal: this.#ends.signal });
    on("pointermove", (event) => this.#rests(event));
    on("pointerleave", () => this.#leaves());
    on("focusin", () => this.#reach());
    on("click", (event) => this.#clicked(event));
    on("keydown", (event) => this.#pressed(event));
    const resized = new ResizeObserver(() => this.#draw());
    resized.observe(body);
    this.#ends.signal.addEventListener("abort", () => resized.disconnect());
  }

  show(shown) {
    if (this.#isOver) return shown.takeOver();
    this.#shown = shown;
    this.#draw();
    return async (format) => (await this.#take())(format);
  }

  #draw() {
    const { body } = this.#within.frame;
    const { svg, points } = draw(body, this.#shown.traces, this.#shown.layout);
    if (this.#svg.isConnected) this.#svg.replaceWith(svg);
    else body.append(svg);
    this.#svg = svg;
    this.#points = points;
  }

  // A moving finger scrolls; a tap is a click.
  #rests({ pointerType, clientX, clientY }) {
    if (pointerType === "touch") return;
    const timer = this.#pointer?.timer ?? setTimeout(() => this.#reach(), REST_MS);
    this.#pointer = { timer, clientX, clientY };
  }

  #leaves() {
    clearTimeout(this.#pointer?.timer);
    this.#pointer = null;
  }

  #clicked(event) {
    this.#reach();
    const { left, top } = this.#svg.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const near = nearest(this.#points, x, y, NEAR_PX);
    if (near) follow(this.#within.figure, this.#within.state, near.trial, event);
  }

  #pressed(event) {
    if (!KEYS.has(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    this.#keys.push(event.key);
    event.preventDefault();
    this.#reach();
  }

  #reach() {
    this.#take().catch(({ message }) => {
      this.#hasFailed = true;
      this.#within.frame.warn(`This chart is not interactive: ${message}.`);
    });
  }

  // The library's image of the chart. After a failure the next call tries again.
  #take() {
    this.#taking ??= this.#takeOver().catch((error) => {
      this.#taking = null;
      throw error;
    });
    return this.#taking;
  }

  async #takeOver() {
    const { figure, frame } = this.#within;
    frame.wait(1, "");
    try {
      await plotly(figure);
      this.#isOver = true;
      delete figure.dataset.sketched;
      const exporter = await this.#shown.takeOver();
      this.#end();
      return exporter;
    } finally {
      frame.wait(0, "");
    }
  }

  #end() {
    const [pointer, { body }] = [this.#pointer, this.#within.frame];
    this.#ends.abort();
    this.#svg.remove();
    if (this.#hasFailed) this.#within.frame.warn("");
    for (const key of this.#keys) body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    if (!pointer) return;
    const { clientX, clientY } = pointer;
    const place = document.elementFromPoint(clientX, clientY);
    place?.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY, bubbles: true }));
  }
}
