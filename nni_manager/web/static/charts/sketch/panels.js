// Positions and scales of the panels of a chart. A single panel fills the chart.

import { extent } from "../formats.js";
import { scaleOf } from "./axes.js";
import { widthOf } from "./svg.js";

const ALONE = { rows: 1, columns: 1, xgap: 0, ygap: 0 };
// Margin beyond the outermost points, as a share of the axis.
const MARGIN = 0.05;
// Width of the title of a vertical axis in pixels, in addition to its labels.
const TITLE = 28;

// `traces`: each with the index of its `panel`, if there are several; `layout`: with `panels`, a list of {xaxis, yaxis},
// and `grid`, {rows, columns, and gaps as shares of a panel}, or with the axes of one panel; `whole`: what they share, in
// pixels. Returns a list of {index, xaxis, yaxis, traces, x and y: scales, left, right, top, bottom, labels: width}.
export function panelsOf(traces, layout, whole) {
  const grid = layout.grid ?? ALONE;
  const upright = (layout.panels ?? [layout]).map(({ xaxis, yaxis }, index) => {
    const own = traces.filter(({ panel = 0 }) => panel === index);
    const [top, bottom] = part(Math.floor(index / grid.columns), grid.rows, grid.ygap, [whole.top, whole.bottom]);
    const y = scale(yaxis, own, "y", [bottom, top]);
    return { xaxis, yaxis, traces: own, y, top, bottom, labels: widest(y.ticks, yaxis, layout.font) };
  });
  const outer = upright.filter((_, index) => index % grid.columns === 0).map(({ labels }) => labels + TITLE);
  const left = Math.max(whole.left, ...outer);
  return upright.map((panel, index) => {
    const ends = part(index % grid.columns, grid.columns, grid.xgap, [left, Math.max(whole.right, left + 1)]);
    return { ...panel, index, x: scale(panel.xaxis, panel.traces, "x", ends), left: ends[0], right: ends[1] };
  });
}

// The ends of one of several adjacent panels.
function part(at, of, gap, [from, to]) {
  const step = (to - from) / (of - gap);
  return [from + at * step, from + (at + 1 - gap) * step];
}

function scale(axis, traces, name, ends) {
  const values = traces.flatMap((trace) => trace[name]);
  return scaleOf(axis, values, ends, beside(traces, name, Math.abs(ends[1] - ends[0])));
}

// Margin of an axis beyond its points, in pixels; 0 for charts with only lines.
function beside(traces, name, length) {
  const sizes = traces.filter(hasMarks).map(({ marker }) => marker.size ?? 6);
  if (!sizes.length) return name === "y" ? MARGIN * length : 0;
  return MARGIN * length + 0.8 * extent(sizes)[1];
}

export function hasMarks({ mode }) {
  return mode.includes("markers");
}

function widest(ticks, { tickfont }, { family }) {
  return extent(ticks.map(({ text }) => widthOf(text, tickfont.size, family)))?.[1] ?? 0;
}
