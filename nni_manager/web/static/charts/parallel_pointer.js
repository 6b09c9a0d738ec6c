// Pointer and keys on parallel coordinates: line at the pointer, brushes on axes, dragged names.

import { extent } from "./formats.js";
import { absentAt } from "./parallel_drawing.js";
import { choices, range } from "./ranges.js";

const NEAR_LINE = 7;
const NEAR_AXIS = 13;
const LEAST_BRUSH = 4;

// The line nearest to a position, or -1; of two at the same distance, the better one.
export function lineAt({ layout, ys }, x, y) {
  const at = layout.axes.findIndex((axis, index) => x >= axis.x && x <= (layout.axes[index + 1]?.x ?? -1));
  if (at < 0) return -1;
  const share = (x - layout.axes[at].x) / layout.step;
  let [nearest, found] = [NEAR_LINE, -1];
  for (let line = 0; line < ys[at].length; line += 1) {
    const [from, to] = [ys[at][line] ?? absentAt(layout), ys[at + 1][line] ?? absentAt(layout)];
    const distance = Math.abs(from + (to - from) * share - y);
    if (distance <= nearest) [nearest, found] = [distance, line];
  }
  return found;
}

export function axisAt({ layout }, x) {
  return layout.axes.find((axis) => Math.abs(axis.x - x) <= NEAR_AXIS) ?? null;
}

// `surface`: the canvas on top. `on`: hover(line, event), open(line, event), brushing(axis, ends or null) while it is
// dragged, brushed(axis, text or null) after that.
export function listen(surface, view, on) {
  let drag = null;
  const place = (event) => {
    const box = surface.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  surface.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    const axis = view.layout && axisAt(view, x);
    if (event.button !== 0) return;
    drag = { axis, from: y, to: y, line: axis ? -1 : lineAt(view, x, y) };
    if (axis) surface.setPointerCapture(event.pointerId);
  });
  surface.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!view.layout) return;
    surface.style.cursor = axisAt(view, x) ? "ns-resize" : "pointer";
    if (!drag?.axis) return on.hover(axisAt(view, x) ? -1 : lineAt(view, x, y), event);
    drag.to = Math.min(Math.max(y, view.layout.top), view.layout.bottom);
    on.brushing(drag.axis, extent([drag.from, drag.to]));
  });
  surface.addEventListener("pointerup", (event) => {
    const ended = drag;
    drag = null;
    if (ended?.axis) on.brushed(ended.axis, textOf(ended));
    else if (ended && ended.line >= 0) on.open(ended.line, event);
  });
  const leave = () => {
    drag = null;
    on.brushing(null, null);
    on.hover(-1);
  };
  surface.addEventListener("pointercancel", leave);
  surface.addEventListener("pointerleave", () => drag?.axis || leave());
}

// The filter of a brush; a click on an axis removes the filter.
function textOf({ axis, from, to }) {
  const [upper, lower] = extent([from, to]);
  if (lower - upper < LEAST_BRUSH) return null;
  if (axis.kind !== "choice") return range(...extent([axis.back(lower), axis.back(upper)]));
  const framed = axis.ticks.filter(({ y }) => y >= upper - axis.step / 2 && y <= lower + axis.step / 2);
  return choices(framed.map(({ value }) => value).filter((value) => value !== undefined)) || null;
}

// Keyboard: arrows move through the lines from the best downwards, Enter opens, Escape leaves.
export function walk(body, view, on) {
  let at = -1;
  body.addEventListener("keydown", (event) => {
    const of = view.answer?.lines.number.length ?? 0;
    if (event.target !== body || !of) return;
    const step = { ArrowDown: -1, ArrowRight: -1, ArrowUp: 1, ArrowLeft: 1 }[event.key];
    if (step) on.hover((at = at < 0 || at >= of ? of - 1 : (at + step + of) % of));
    else if (event.key === "Enter" && at >= 0) on.open(at, event);
    else if (event.key === "Escape" && at >= 0) on.hover((at = -1));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

// Axes are reordered by dragging a name onto another, or with the arrow keys.
export function reorder(button, index, moved) {
  button.draggable = true;
  button.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", String(index)));
  button.addEventListener("dragover", (event) => event.preventDefault());
  button.addEventListener("drop", (event) => {
    event.preventDefault();
    moved(Number(event.dataTransfer.getData("text/plain")), index);
  });
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    moved(index, index + step);
  });
}
