// The names of traces above a chart, in as many lines as they need.

import { shapeOf } from "./marks.js";
import { make, stroked, textOf } from "./svg.js";

const [SAMPLE, GAP, LINE] = [30, 5, 19];
const pen = document.createElement("canvas").getContext("2d");

// Returns {parts: elements, height in pixels}.
export function legend(traces, { legend: { font }, font: { family, color }, margin }, width) {
  pen.font = `${font.size}px ${family}`;
  const parts = [];
  let [x, row] = [margin.l, 0];
  for (const trace of traces.filter(({ showlegend, name }) => showlegend !== false && name)) {
    const text = textOf(trace.name);
    const needed = SAMPLE + 2 * GAP + pen.measureText(text).width;
    if (x > margin.l && x + needed > width - margin.r) [x, row] = [margin.l, row + 1];
    const middle = margin.t + row * LINE + LINE / 2 - 4;
    parts.push(...sample(trace, x + GAP, middle));
    parts.push(make("text", { x: x + SAMPLE + GAP, y: middle + 4, fill: color, "font-size": font.size }, text));
    x += needed;
  }
  return { parts, height: parts.length ? (row + 1) * LINE : 0 };
}

function sample({ mode, line, marker, fill, fillcolor }, left, y) {
  const [right, middle] = [left + SAMPLE - 2 * GAP, left + SAMPLE / 2 - GAP];
  const found = [];
  if (fill) found.push(make("path", { d: `M${left} ${y}H${right}V${y + 6}H${left}Z`, fill: fillcolor }));
  if (mode.includes("lines") && line.width !== 0) found.push(make("path", { d: `M${left} ${y}H${right}`, ...stroked(line) }));
  if (!mode.includes("markers")) return found;
  const symbol = (Array.isArray(marker.symbol) ? marker.symbol[0] : marker.symbol) ?? "circle";
  return [...found, shapeOf({ color: line?.color, ...marker, symbol, size: Math.min(marker.size ?? 6, 16) }, [[middle, y]])];
}
