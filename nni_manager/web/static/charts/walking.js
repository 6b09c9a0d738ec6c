// The points of a chart by keyboard: arrows go from one to the next, Enter opens its trial, Escape leaves.

import { number } from "./formats.js";
import { follow, point } from "./opening.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };

export function walk(library, { figure, frame, state }) {
  let at = -1;
  frame.body.addEventListener("keydown", (event) => {
    if (event.target !== frame.body) return;
    const points = pointsOf(frame.body);
    if (event.key in STEPS && points.length) {
      at = at < 0 || at >= points.length ? 0 : (at + STEPS[event.key] + points.length) % points.length;
      show(library, frame, points[at]);
      point(figure, points[at].trial);
    } else if (event.key === "Enter" && points[at]) {
      follow(figure, state, points[at].trial, event);
    } else if (event.key === "Escape" && at >= 0) {
      at = -1;
      point(figure, null);
      library.Fx.unhover(frame.body);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function show(library, frame, { trial, x, y, curveNumber, pointNumber, subplot }) {
  library.Fx.hover(frame.body, [{ curveNumber, pointNumber }], subplot);
  frame.spoken.textContent = `trial ${trial}: ${number(y)} at ${number(x)}`;
}

// Every point that leads to a trial, from left to right.
function pointsOf(body) {
  const found = [];
  (body.data ?? []).forEach((trace, curveNumber) => {
    if (!Array.isArray(trace.customdata) || trace.visible === "legendonly") return;
    const subplot = `${trace.xaxis ?? "x"}${trace.yaxis ?? "y"}`;
    trace.customdata.forEach((trial, pointNumber) => {
      if (Number.isInteger(trial))
        found.push({ trial, x: trace.x[pointNumber], y: trace.y[pointNumber], curveNumber, pointNumber, subplot });
    });
  });
  return found.sort((one, other) => one.x - other.x);
}
