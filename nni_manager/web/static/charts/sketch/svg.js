// Elements of an SVG.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function make(tag, attributes, text) {
  const made = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A line through these positions, with gaps at missing ones. `hv`: first horizontal, then vertical steps.
export function path(places, shape) {
  let text = "";
  let isOn = false;
  for (const place of places) {
    if (place) text += isOn ? onTo(place, shape) : `M${tenths(place[0])} ${tenths(place[1])}`;
    isOn = place !== null;
  }
  return text;
}

function onTo([x, y], shape) {
  return shape === "hv" ? `H${tenths(x)}V${tenths(y)}` : `L${tenths(x)} ${tenths(y)}`;
}

const DASHES = { dot: "3 3", dash: "9 6" };

// Attributes of one of the library's lines.
export function stroked({ color, width, dash }) {
  return { fill: "none", stroke: color, "stroke-width": width, "stroke-dasharray": DASHES[dash] ?? "none" };
}

export function tenths(value) {
  return Math.round(value * 10) / 10;
}

const pen = document.createElement("canvas").getContext("2d");

// Width of a text in pixels.
export function widthOf(text, size, family) {
  pen.font = `${size}px ${family}`;
  return pen.measureText(text).width;
}

const LETTERS = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };

// Undoes `plain` of formats.js, which escapes texts for the library.
export function textOf(plain) {
  return plain.replace(/&(?:lt|gt|amp);/g, (found) => LETTERS[found]);
}
