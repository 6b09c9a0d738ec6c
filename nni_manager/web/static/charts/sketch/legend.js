// The legend above a chart, wrapped into lines.

import { shapeOf } from "./marks.js";
import { make, stroked, textOf, widthOf } from "./svg.js";

const [SAMPLE, GAP, LINE, ABOVE, BELOW] = [30, 5, 19, 5, 9];

// Returns {parts: elements, height in pixels}.
export function legend(traces, { legend: { font }, font: { family, color }, margin }, width) {
  const parts = [];
  let [x, row] = [margin.l, 0];
  for (const trace of traces.filter(isNamed)) {
    const text = textOf(trace.name);
    const needed = SAMPLE + 2 * GAP + widthOf(text, font.size, family);
    if (x > margin.l && x + needed > width - margin.r) [x, row] = [margin.l, row + 1];
    const middle = margin.t + ABOVE + row * LINE + LINE / 2;
    parts.push(...sample(trace, x + GAP, middle));
    parts.push(make("text", { x: x + SAMPLE + GAP, y: middle + 4, fill: color, "font-size": font.size }, text));
    x += needed;
  }
  return { parts, height: parts.length ? ABOVE + (row + 1) * LINE + BELOW : 0 };
}

function isNamed({ showlegend, name, x }) {
  return showlegend !== false && name && x.length > 0;
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
