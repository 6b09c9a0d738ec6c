// Draws parallel coordinates with a pen: that of a canvas, or one that writes SVG.

import { scored } from "./colours.js";

const ABSENT = 16;
// Width of the colour bar right of the last axis, in pixels.
const WIDEST = 40;

// Position of missing values: below the axis.
export function absentAt({ bottom }) {
  return bottom + ABSENT;
}

// Lines in their order; the best is drawn last, on top.
export function drawLines(pen, layout, ys, { score }, theme) {
  const opacity = Math.min(0.85, Math.max(0.22, 130 / score.length));
  for (let line = 0; line < score.length; line += 1) {
    const isBest = line === score.length - 1;
    pen.globalAlpha = isBest ? 1 : Math.max(opacity, score[line] > 0.95 ? 0.8 : 0);
    pen.lineWidth = isBest ? 3 : 1; // without a GPU, lines wider than a pixel take four times as long
    pen.strokeStyle = scored(score[line], theme);
    stroke(pen, layout, ys, line);
  }
  pen.globalAlpha = 1;
}

export function drawLine(pen, layout, ys, line, colour) {
  pen.lineWidth = 3.5;
  pen.strokeStyle = colour;
  stroke(pen, layout, ys, line);
  pen.fillStyle = colour;
  for (const { index, x } of layout.axes) pen.fillRect(x - 3, (ys[index][line] ?? absentAt(layout)) - 3, 6, 6);
}

function stroke(pen, layout, ys, line) {
  pen.beginPath();
  for (const { index, x } of layout.axes) {
    const y = ys[index][line] ?? absentAt(layout);
    if (index) pen.lineTo(x, y);
    else pen.moveTo(x, y);
  }
  pen.stroke();
}

export function drawAxes(pen, layout, ys, theme) {
  pen.font = "11px system-ui, sans-serif";
  pen.lineWidth = 1;
  for (const axis of layout.axes) {
    pen.strokeStyle = theme.fg;
    pen.beginPath();
    pen.moveTo(axis.x, layout.top);
    pen.lineTo(axis.x, layout.bottom);
    pen.stroke();
    for (const { y, text } of spaced(axis.ticks)) word(pen, clipped(text), axis.x + 5, y + 4, theme);
    if (ys[axis.index].includes(null)) word(pen, axis.lacking ?? "absent", axis.x + 5, absentAt(layout) + 4, theme);
  }
  drawKey(pen, layout, ys, theme);
}

// Histogram of all trials along each axis, not only of drawn ones. The bins of the result are linear, so they are not
// drawn on a logarithmic axis.
export function drawCounts(pen, layout, histograms, theme) {
  for (const { axis: name, counts } of histograms ?? []) {
    const axis = layout.axes.find((each) => each.name === name);
    if (!axis || !counts.length || axis.lacking) continue;
    const most = counts.reduce((one, other) => Math.max(one, other), 1);
    const height = (layout.bottom - layout.top) / counts.length;
    pen.fillStyle = theme.muted;
    pen.globalAlpha = 0.3;
    counts.forEach((count, at) => {
      const width = (count / most) * Math.min(layout.step * 0.2, WIDEST);
      pen.fillRect(axis.x, layout.bottom - (at + 1) * height, width, height - 1);
    });
    pen.globalAlpha = 1;
  }
}

export function drawBrush(pen, axis, [upper, lower], theme) {
  pen.fillStyle = theme.accent;
  pen.globalAlpha = 0.3;
  pen.fillRect(axis.x - 9, upper, 18, lower - upper);
  pen.globalAlpha = 1;
  pen.strokeStyle = theme.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(axis.x - 9, upper, 18, lower - upper);
}

// The colour scale from worst to best, right of the result axis and in its direction.
function drawKey(pen, { axes, top, bottom, width }, ys, theme) {
  const result = ys.at(-1) ?? [];
  const [best, worst] = [result.at(-1), result[0]].map((y) => y ?? absentAt({ bottom }));
  const isBestOnTop = best <= worst;
  const [steps, from, height] = [40, top + 16, bottom - top - 32];
  for (let at = 0; at < steps; at += 1) {
    pen.fillStyle = scored(isBestOnTop ? 1 - at / (steps - 1) : at / (steps - 1), theme);
    pen.fillRect(width - 14, from + (at * height) / steps, 8, height / steps + 0.5);
  }
  pen.textAlign = "right";
  word(pen, isBestOnTop ? "best" : "worst", width - 4, from - 5, theme);
  word(pen, isBestOnTop ? "worst" : "best", width - 4, from + height + 13, theme);
  pen.textAlign = "left";
}

// A text that is readable above lines.
function word(pen, text, x, y, theme) {
  pen.lineWidth = 3;
  pen.strokeStyle = theme.panel;
  pen.strokeText(text, x, y);
  pen.fillStyle = theme.fg;
  pen.fillText(text, x, y);
  pen.lineWidth = 1;
}

// Shortens a text to the available width.
function spaced(ticks) {
  const shown = [];
  for (const tick of ticks) if (!shown.length || Math.abs(tick.y - shown.at(-1).y) >= 13) shown.push(tick);
  return shown;
}

export function clipped(text) {
  return text.length <= 11 ? text : `${text.slice(0, 10)}…`;
}
