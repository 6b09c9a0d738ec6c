// Axes of parallel coordinates: positions of axes and of values.

import { extent, finite, number, placed } from "./formats.js";
import { includes, parsedRange } from "./ranges.js";

const MARGIN = { left: 44, right: 84, top: 40, bottom: 30 };
// Minimum distance of axes: below it labels overlap, so the chart scrolls.
const NARROWEST = 86;

// `answer`: to the question `parallel`. The result is the last axis, and the last value of each line.
export function place(answer, { width, height, isLog }) {
  const wide = Math.max(width, MARGIN.left + MARGIN.right + NARROWEST * (answer.axes.length - 1));
  const step = (wide - MARGIN.left - MARGIN.right) / Math.max(answer.axes.length - 1, 1);
  const [top, bottom] = [MARGIN.top, height - MARGIN.bottom];
  const axes = answer.axes.map((axis, index) => {
    const isResult = index === answer.axes.length - 1;
    const scale = scaleOf(axis, answer.lines.values[index] ?? [], isResult ? isLog : axis.log, [bottom, top]);
    return { ...axis, ...scale, index, isResult, x: MARGIN.left + index * step };
  });
  return { axes, width: wide, height, top, bottom, step };
}

function scaleOf(axis, values, isLog, ends) {
  if (axis.kind === "choice") return ofChoices(axis, ends);
  const seen = extent(values) ?? [0, 1];
  const low = finite(axis.low) ? Math.min(axis.low, seen[0]) : seen[0];
  const high = finite(axis.high) ? Math.max(axis.high, seen[1]) : seen[1];
  return isLog && high > 0 ? logarithmic(values, low, high, ends) : linear(low, high, ends);
}

function linear(low, high, [bottom, top]) {
  const span = high - low || 1;
  const of = (value) => (finite(value) ? bottom + ((value - low) / span) * (top - bottom) : null);
  const back = (y) => low + ((y - bottom) / (top - bottom)) * span;
  return { of, back, ticks: even(low, high).map((value) => ({ y: of(value), text: number(value) })) };
}

// A log axis shows values that are not above zero at the position of missing values, labelled `lacking`.
function logarithmic(values, low, high, ends) {
  let least = low;
  if (low <= 0) least = extent(values.filter((value) => finite(value) && value > 0))?.[0] ?? high / 1000;
  const inner = linear(Math.log10(least), Math.log10(high), ends);
  const of = (value) => (finite(value) && value > 0 ? inner.of(Math.log10(value)) : null);
  const texts = decades(least, high).map((value) => ({ y: of(value), text: number(value) }));
  return { of, back: (y) => 10 ** inner.back(y), ticks: texts, lacking: "not above 0" };
}

// A line's value is the index of its choice. `value`: undefined for the shared position of all other choices.
function ofChoices(axis, [bottom, top]) {
  const texts = placed(axis);
  const step = (top - bottom) / Math.max(texts.length, 1);
  const y = (index) => bottom + (index + 0.5) * step;
  const of = (index) => (finite(index) ? y(index) : null);
  const ticks = texts.map((text, index) => ({ y: y(index), text, value: axis.choices[index] }));
  return { of, ticks, step: Math.abs(step) };
}

// About five round numbers.
function even(low, high) {
  if (high === low) return [low];
  const rough = (high - low) / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * unit >= rough) * unit;
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  const found = [];
  for (let at = first; at <= last; at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

// At most six powers of ten; within one power, both ends.
function decades(low, high) {
  const [from, to] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (to - from < 1) return [low, high];
  const every = Math.ceil((to - from) / 6);
  const found = [];
  for (let power = from; power <= to; power += every) found.push(10 ** power);
  return found;
}

// The y of each line on each axis; null: no value.
export function positions({ axes }, { number: numbers, values }) {
  return axes.map((axis) => numbers.map((_, line) => axis.of(values[axis.index][line])));
}

// Position of the axis's filter: [upper, lower] pairs of y, or null without a filter.
export function brushed(axis, text, { top, bottom }) {
  if (!text) return null;
  if (axis.kind === "choice") {
    const chosen = axis.ticks.filter(({ value }) => value !== undefined && includes(text, value));
    return chosen.map(({ y }) => [y - axis.step * 0.4, y + axis.step * 0.4]);
  }
  const range = parsedRange(text);
  if (!range) return null;
  const y = (value, open) => Math.min(Math.max((value === null ? null : axis.of(value)) ?? open, top), bottom);
  return [[y(range[1], top), y(range[0], bottom)]];
}
