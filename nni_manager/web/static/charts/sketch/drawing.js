// Draws the library's traces and layout as an SVG that looks like the library's: same margins, axes and names. Supports
// only what our charts of points and lines use.

import { legend } from "./legend.js";
import { shapeOf } from "./marks.js";
import { hasMarks, panelsOf } from "./panels.js";
import { pointsOf } from "./points.js";
import { make, path, stroked, textOf } from "./svg.js";

// Returns {svg, panels: from `panelsOf`, points: from `pointsOf`}.
export function draw(body, traces, layout) {
  const size = { width: body.clientWidth, height: body.clientHeight };
  const names = legend(traces, layout, size.width);
  const { l, r, t, b } = layout.margin;
  const whole = { left: l, right: size.width - r, top: t + names.height, bottom: size.height - b };
  const panels = panelsOf(traces, layout, whole);
  const look = { class: "chart-sketch", "font-family": layout.font.family, "aria-hidden": "true" };
  const svg = make("svg", { ...look, ...size });
  const points = panels.flatMap((panel) => drawPanel(svg, panel, layout));
  svg.append(...names.parts);
  return { svg, panels, points };
}

// Returns its points.
function drawPanel(svg, panel, layout) {
  const placed = panel.traces.map((trace) => places(trace, panel));
  svg.append(...grid(panel, layout), ...titles(panel));
  svg.append(...panel.traces.flatMap((trace, at) => parts(trace, placed[at], placed[at - 1])));
  return panel.traces.flatMap((trace, at) => pointsOf(trace, placed[at]));
}

function grid({ x, y, left, right, top, bottom, xaxis, yaxis }, { font }) {
  const line = (d, stroke) => make("path", { d, stroke, fill: "none", "shape-rendering": "crispEdges" });
  const label = (text, more) => make("text", { fill: font.color, "font-size": xaxis.tickfont.size, ...more }, text);
  return [
    ...x.ticks.map(({ at, isZero }) => line(`M${at} ${top}V${bottom}`, isZero ? xaxis.zerolinecolor : xaxis.gridcolor)),
    ...y.ticks.map(({ at, isZero }) => line(`M${left} ${at}H${right}`, isZero ? yaxis.zerolinecolor : yaxis.gridcolor)),
    line(`M${left} ${top}V${bottom}H${right}`, yaxis.linecolor),
    ...x.ticks.map(({ at, text }) => label(text, { x: at, y: bottom + 14, "text-anchor": "middle" })),
    ...y.ticks.map(({ at, text }) => label(text, { x: left - 3, y: at + 4, "text-anchor": "end" })),
  ];
}

function titles({ left, right, top, bottom, labels, xaxis, yaxis }) {
  const [across, up] = [(left + right) / 2, (top + bottom) / 2].map(Math.round);
  const look = ({ title }) => ({ fill: title.font.color, "font-size": title.font.size, "text-anchor": "middle" });
  return [
    make("text", { x: across, y: bottom + 33, ...look(xaxis) }, textOf(xaxis.title.text)),
    make("text", { transform: `translate(${left - labels - 13} ${up}) rotate(-90)`, ...look(yaxis) }, textOf(yaxis.title.text)),
  ];
}

// [left, top] of each point in pixels; null: not on the chart.
function places(trace, { x, y }) {
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

// The edge of an area has no line.
function hasLine({ mode, line }) {
  return mode.includes("lines") && line.width !== 0;
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
