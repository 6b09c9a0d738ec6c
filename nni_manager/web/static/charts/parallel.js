// Parallel coordinates on our own canvas: parameters, then the result. Brushing an axis filters the page.

import { run, without } from "./chart.js";
import { colours } from "./colours.js";
import { number, placed } from "./formats.js";
import { part } from "./frame.js";
import { hasNoPlace, isLog as isLogarithmic, leftOut } from "./log_axes.js";
import { follow, point, selectedIn } from "./opening.js";
import { brushed, place, positions } from "./parallel_axes.js";
import { drawAxes, drawBrush, drawCounts, drawLine, drawLines } from "./parallel_drawing.js";
import { listen, reorder, walk } from "./parallel_pointer.js";
import { names } from "./ranges.js";
import { SvgPen } from "./svg_pen.js";

const HEIGHT = 360;

export function mount(figure, { state }) {
  const view = { answer: null, hovered: -1, brushing: null };
  const chart = run(figure, state, {
    question: "parallel",
    axes: { y: "logy" },
    extra: () => ({ axes: state.get("axes") }),
    empty: ({ of, lines }) => (lines.number.length ? "" : without("result", of, "The first line appears with the first result")),
    draw: (answer, within) => draw(Object.assign(view, within, { answer })),
  });
  new ResizeObserver(() => view.body && view.body.clientWidth !== view.drawnAt && chart.render()).observe(figure);
}

function draw(view) {
  const { answer, figure, frame, state } = view;
  if (!view.body) prepare(view);
  view.drawnAt = view.body.clientWidth;
  const isLog = isLogarithmic(state, "logy");
  view.layout = place(answer, { width: view.drawnAt, height: HEIGHT, isLog });
  view.ys = positions(view.layout, answer.lines);
  view.theme = colours();
  view.hovered = -1;
  paint(view.ground, view, ground);
  paint(view.surface, view, marks);
  name(view);
  const hidden = isLog ? answer.lines.values.at(-1).filter(hasNoPlace).length : 0;
  const title = `Parameters and result of each trial, best on top${leftOut(hidden)}`;
  return { title, ...table(answer), exporter: (format) => image(view, format) };
}

function prepare(view) {
  const { figure, frame, state } = view;
  view.body = frame.body;
  view.inner = part(frame.body, "div", "parallel");
  view.ground = part(view.inner, "canvas", "parallel-ground");
  view.surface = part(view.inner, "canvas", "parallel-surface");
  view.names = part(view.inner, "div", "parallel-names");
  view.tip = part(view.inner, "div", "chart-tip");
  view.tip.hidden = true;
  frame.body.tabIndex = 0;
  frame.body.setAttribute("role", "group");
  const on = {
    hover: (line, event) => hover(view, line, event),
    open: (line, event) => follow(figure, state, view.answer.lines.number[line], event),
    brushing: (axis, ends) => {
      view.brushing = axis && { axis, ends };
      paint(view.surface, view, marks);
    },
    brushed: (axis, text) => {
      view.brushing = null;
      paint(view.surface, view, marks);
      const name = filterOf(axis, view);
      if (text !== state.get(name)) state.set({ [name]: text, page: null }, { push: true });
    },
  };
  listen(view.surface, view, on);
  walk(frame.body, view, on);
}

function filterOf(axis, { key }) {
  return axis.isResult ? `m.${key}` : `p.${axis.name}`;
}

// Size in device pixels.
function paint(canvas, view, drawing) {
  const { width, height } = view.layout;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = view.inner.style.width = `${width}px`;
  canvas.style.height = view.inner.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  drawing(pen, view);
}

function ground(pen, { layout, ys, answer, theme }) {
  drawCounts(pen, layout, answer.histograms, theme);
  drawLines(pen, layout, ys, answer.lines, theme);
  drawAxes(pen, layout, ys, theme);
}

// The layer above the lines: filters, selected trials, the line at the pointer.
function marks(pen, view) {
  const { layout, ys, answer, theme, state, hovered, brushing } = view;
  for (const axis of layout.axes) {
    const isBrushed = brushing?.axis.index === axis.index;
    const ends = isBrushed ? [brushing.ends] : brushed(axis, state.get(filterOf(axis, view)), layout);
    for (const each of ends ?? []) drawBrush(pen, axis, each, theme);
  }
  const selected = new Set(selectedIn(state));
  answer.lines.number.forEach((trial, line) => selected.has(trial) && drawLine(pen, layout, ys, line, theme.accent));
  if (hovered >= 0) drawLine(pen, layout, ys, hovered, theme.fg);
}

function hover(view, line, event) {
  if (line === view.hovered) return;
  view.hovered = line;
  point(view.figure, line < 0 ? null : view.answer.lines.number[line]);
  paint(view.surface, view, marks);
  view.tip.hidden = line < 0;
  if (line < 0) return;
  const { axes, lines } = view.answer;
  const values = axes.map((axis, index) => `${axis.name} ${shown(axis, lines.values[index][line])}`);
  view.tip.replaceChildren(...[`trial ${lines.number[line]}`, ...values.reverse()].map(told));
  const x = event ? event.clientX - view.inner.getBoundingClientRect().left : view.layout.axes[0].x;
  view.tip.style.left = `${Math.min(x + 14, view.layout.width - 180)}px`;
  view.frame.spoken.textContent = event ? "" : `trial ${lines.number[line]}: ${values.join(", ")}`;
}

function told(text) {
  return Object.assign(document.createElement("div"), { textContent: text });
}

function shown(axis, value) {
  return value === null ? "absent" : number(cell(axis, value));
}

// The names above the axes, which can be dragged to reorder them. The last one, the result, is fixed.
function name(view) {
  const { answer, layout, state } = view;
  const order = answer.axes.slice(0, -1).map((axis) => axis.name);
  const focused = [...view.names.children].indexOf(document.activeElement);
  const moved = (from, to) => {
    if (from === to || to < 0 || to >= order.length) return;
    order.splice(to, 0, ...order.splice(from, 1));
    view.focus = to;
    state.set({ axes: names(order) });
  };
  view.names.replaceChildren(...layout.axes.map((axis) => heading(axis, layout, moved)));
  if (focused >= 0) view.names.children[view.focus ?? focused]?.focus();
  view.focus = undefined;
}

function heading(axis, layout, moved) {
  const made = document.createElement(axis.isResult ? "span" : "button");
  made.textContent = axis.name;
  made.title = axis.isResult ? axis.name : `${axis.name}: drag, or use the arrow keys, to reorder the axes`;
  made.style.left = `${axis.x}px`;
  made.style.maxWidth = `${layout.step - 6}px`;
  if (!axis.isResult) {
    made.type = "button";
    reorder(made, axis.index, moved);
  }
  return made;
}

async function image({ layout, ys, answer, theme, state, key }, format) {
  const view = { layout, ys, answer, theme, state, key, hovered: -1, brushing: null };
  const canvas = document.createElement("canvas");
  const pen = format === "svg" ? new SvgPen() : canvas.getContext("2d");
  if (format !== "svg") {
    [canvas.width, canvas.height] = [2 * layout.width, 2 * layout.height];
    pen.scale(2, 2);
    pen.fillStyle = theme.panel;
    pen.fillRect(0, 0, layout.width, layout.height);
  }
  ground(pen, view);
  marks(pen, view);
  titles(pen, layout, theme);
  if (format === "svg") return pen.drawing(layout.width, layout.height, theme.panel);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function titles(pen, { axes, top }, theme) {
  pen.fillStyle = theme.fg;
  pen.textAlign = "center";
  for (const axis of axes) pen.fillText(axis.name, axis.x, top - 14);
}

function table({ axes, lines }) {
  const values = (line) => axes.map((axis, index) => cell(axis, lines.values[index][line]));
  const rows = lines.number.map((trial, line) => [trial, lines.id[line], ...values(line)]);
  return { columns: ["trial", "id", ...axes.map(({ name }) => name)], rows: rows.reverse() };
}

function cell({ kind, ...all }, value) {
  return kind === "choice" && value !== null ? placed(all)[value] : value;
}
