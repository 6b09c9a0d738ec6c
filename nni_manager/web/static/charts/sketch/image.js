// Exports a drawing as a file.

import { make } from "./svg.js";

// `format`: "svg", or "png" with doubled resolution. `ground`: background colour.
export async function image(svg, ground, format) {
  svg.prepend(make("rect", { width: "100%", height: "100%", fill: ground }));
  const text = new XMLSerializer().serializeToString(svg);
  if (format === "svg") return new Blob([text], { type: "image/svg+xml" });
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = ["width", "height"].map((side) => 2 * svg.getAttribute(side));
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
