// The part of a canvas context that our drawings use, writing SVG.

export class SvgPen {
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  globalAlpha = 1;
  font = "";
  textAlign = "left";
  #parts = [];
  #path = [];

  beginPath() {
    this.#path = [];
  }

  moveTo(x, y) {
    this.#path.push(`M${point(x, y)}`);
  }

  lineTo(x, y) {
    this.#path.push(`L${point(x, y)}`);
  }

  stroke() {
    this.#parts.push(`<path d="${this.#path.join("")}" fill="none" ${this.#stroked()}/>`);
  }

  fillRect(x, y, width, height) {
    this.#parts.push(`<rect ${box(x, y, width, height)} fill="${this.fillStyle}" opacity="${this.globalAlpha}"/>`);
  }

  strokeRect(x, y, width, height) {
    this.#parts.push(`<rect ${box(x, y, width, height)} fill="none" ${this.#stroked()}/>`);
  }

  // Outline behind the letters; the same text is filled next.
  strokeText(text, x, y) {
    this.#text(text, x, y, `fill="none" stroke-linejoin="round" ${this.#stroked()}`);
  }

  fillText(text, x, y) {
    this.#text(text, x, y, `fill="${this.fillStyle}"`);
  }

  // The drawing as a file.
  drawing(width, height, ground) {
    const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    const style = 'font-family="system-ui, sans-serif" font-size="11"';
    const head = `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${style}>`;
    const whole = `${head}<rect width="100%" height="100%" fill="${ground}"/>${this.#parts.join("")}</svg>`;
    return new Blob([whole], { type: "image/svg+xml" });
  }

  #text(text, x, y, look) {
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign];
    this.#parts.push(`<text x="${short(x)}" y="${short(y)}" text-anchor="${anchor}" ${look}>${escaped(text)}</text>`);
  }

  #stroked() {
    return `stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}" stroke-opacity="${this.globalAlpha}"`;
  }
}

function short(value) {
  return Math.round(value * 100) / 100;
}

function point(x, y) {
  return `${short(x)} ${short(y)}`;
}

function box(x, y, width, height) {
  return `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(Math.max(height, 0))}"`;
}

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

function escaped(text) {
  return text.replace(/[&<>"]/g, (letter) => ESCAPES[letter]);
}
