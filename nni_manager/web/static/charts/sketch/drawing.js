// Draws traces and layout as the library takes them, as far as our charts of points and lines use them, as an SVG that
// looks like the library's: the same margins, axes and names.

import { extent } from "../formats.js";
import { scaleOf } from "./axes.js";
import { legend } from "./legend.js";
import { shapeOf } from "./marks.js";
import { make, path, stroked, textOf, widthOf } from "./svg.js";

// Of the length of an axis, beside the outermost points.
const MARGIN = 0.05;
// Pixels that the title of an upright axis takes, beside those of its labels.
const TITLE = 28;

// Returns {svg, points: [{x, y, trial}], in pixels}.
export function draw(body, traces, layout) {
  const size = { width: body.clientWidth, height: body.clientHeight };
  const names = legend(traces, layout, size.width);
  const { l, r, t, b } = layout.margin;
  const scale = (name, ends) => {
    const values = traces.flatMap((trace) => trace[name]);
    return scaleOf(layout[`${name}axis`], values, ends, beside(traces, name, Math.abs(ends[1] - ends[0])));
  };
  const [top, bottom] = [t + names.height, size.height - b];
  const y = scale("y", [bottom, top]);
  const labels = widest(y.ticks, layout);
  const left = Math.max(l, labels + TITLE);
  const box = { left, right: Math.max(size.width - r, left + 1), top, bottom, labels };
  const x = scale("x", [left, box.right]);
  const svg = make("svg", { class: "chart-sketch", "aria-hidden": "true", ...size });
  svg.append(...grid(x, y, box, layout), ...titles(box, size, layout));
  const placed = traces.map((trace) => places(trace, x, y));
  svg.append(...traces.flatMap((trace, at) => parts(trace, placed[at], placed[at - 1])));
  svg.append(...names.parts);
  return { svg, points: placed.flatMap((found, at) => pointsOf(traces[at], found)) };
}

function widest(ticks, { yaxis, font }) {
  return extent(ticks.map(({ text }) => widthOf(text, yaxis.tickfont.size, font.family)))?.[1] ?? 0;
}

// Pixels that an axis goes on beyond its points; lines alone end at its ends.
function beside(traces, name, length) {
  const sizes = traces.filter(hasMarks).map(({ marker }) => marker.size ?? 6);
  if (!sizes.length) return name === "y" ? MARGIN * length : 0;
  return MARGIN * length + 0.8 * extent(sizes)[1];
}

function hasMarks({ mode }) {
  return mode.includes("markers");
}

// The edge of an area has none.
function hasLine({ mode, line }) {
  return mode.includes("lines") && line.width !== 0;
}

function grid(x, y, { left, right, top, bottom }, { xaxis, yaxis, font }) {
  const line = (d, stroke) => make("path", { d, stroke, class: "line" });
  const label = (text, more) => make("text", { fill: font.color, "font-size": xaxis.tickfont.size, ...more }, text);
  return [
    ...x.ticks.map(({ at, isZero }) => line(`M${at} ${top}V${bottom}`, isZero ? xaxis.zerolinecolor : xaxis.gridcolor)),
    ...y.ticks.map(({ at, isZero }) => line(`M${left} ${at}H${right}`, isZero ? yaxis.zerolinecolor : yaxis.gridcolor)),
    line(`M${left} ${top}V${bottom}H${right}`, yaxis.linecolor),
    ...x.ticks.map(({ at, text }) => label(text, { x: at, y: bottom + 14, "text-anchor": "middle" })),
    ...y.ticks.map(({ at, text }) => label(text, { x: left - 3, y: at + 4, "text-anchor": "end" })),
  ];
}

function titles({ left, right, top, bottom, labels }, { height }, { xaxis, yaxis }) {
  const [across, up] = [(left + right) / 2, (top + bottom) / 2].map(Math.round);
  const look = ({ title }) => ({ fill: title.font.color, "font-size": title.font.size, "text-anchor": "middle" });
  return [
    make("text", { x: across, y: height - 11, ...look(xaxis) }, textOf(xaxis.title.text)),
    make("text", { transform: `translate(${left - labels - 13} ${up}) rotate(-90)`, ...look(yaxis) }, textOf(yaxis.title.text)),
  ];
}

// [x, y] of each point in pixels; null: it has no place.
function places(trace, x, y) {
  return trace.x.map((value, at) => {
    const place = [x.of(value), y.of(trace.y[at])];
    return place.every(Number.isFinite) ? place : null;
  });
}

function parts(trace, placed, before) {
  const found = [];
  if (trace.fill === "tonexty" && before) {
    const edge = [...placed, ...[...before].reverse()].filter(Boolean);
    found.push(make("path", { d: path(edge), fill: trace.fillcolor }));
  }
  if (hasLine(trace)) found.push(make("path", { d: path(placed, trace.line.shape), ...stroked(trace.line) }));
  if (hasMarks(trace)) found.push(...marksOf(trace, placed));
  return found;
}

// All marks with one symbol as one shape.
function marksOf({ marker, line }, placed) {
  const bySymbol = new Map();
  placed.forEach((place, at) => {
    const symbol = (Array.isArray(marker.symbol) ? marker.symbol[at] : marker.symbol) ?? "circle";
    if (!bySymbol.has(symbol)) bySymbol.set(symbol, []);
    if (place) bySymbol.get(symbol).push(place);
  });
  return [...bySymbol].map(([symbol, at]) => shapeOf({ color: line?.color, ...marker, symbol }, at));
}

function pointsOf(trace, placed) {
  if (!Array.isArray(trace.customdata)) return [];
  const found = trace.customdata.map((trial, at) => placed[at] && { trial, x: placed[at][0], y: placed[at][1] });
  return found.filter((point) => point && Number.isInteger(point.trial));
}
