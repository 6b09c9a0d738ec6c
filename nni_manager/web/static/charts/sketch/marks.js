// The library's symbols that our charts use.

import { make, tenths } from "./svg.js";

const CORNERS = {
  diamond: polygon(4, 1.3),
  square: polygon(4, 1.25, 45),
  "triangle-up": polygon(3, 1.33),
  star: polygon(10, 1.4).map(([x, y], at) => (at % 2 ? [0.382 * x, 0.382 * y] : [x, y])),
};

// Corners of a mark with radius 1, starting at the top.
function polygon(count, radius, turned = 0) {
  return Array.from({ length: count }, (_, at) => {
    const angle = (2 * Math.PI * at) / count + (turned * Math.PI) / 180;
    return [radius * Math.sin(angle), -radius * Math.cos(angle)];
  });
}

// Marks at these positions as one element. `marker`: as in the library, with one symbol.
export function shapeOf({ symbol, color, size = 6, opacity = 1, line }, places) {
  const [name, radius] = [symbol.replace(/-open$/, ""), size / 2];
  const d = places.map((place) => one(name, place, radius)).join("");
  const isOpen = symbol !== name || name === "x";
  const stroke = { fill: "none", stroke: color, "stroke-width": name === "x" ? 0.7 * radius : (line?.width ?? 1) };
  return make("path", { d, opacity, ...(isOpen ? stroke : { fill: color }) });
}

function one(name, [x, y], radius) {
  if (name === "line-ew") return ""; // a line without a width
  if (name === "x") return cross(x, y, 0.85 * radius);
  if (!(name in CORNERS)) return circle(x, y, radius);
  const corners = CORNERS[name].map(([across, up]) => `${tenths(x + radius * across)} ${tenths(y + radius * up)}`);
  return `M${corners.join("L")}Z`;
}

function circle(x, y, radius) {
  const half = `a${radius} ${radius} 0 1 0`;
  return `M${tenths(x - radius)} ${tenths(y)}${half} ${2 * radius} 0${half} ${-2 * radius} 0`;
}

function cross(x, y, arm) {
  const [left, right, top, bottom] = [x - arm, x + arm, y - arm, y + arm].map(tenths);
  return `M${left} ${top}L${right} ${bottom}M${left} ${bottom}L${right} ${top}`;
}
