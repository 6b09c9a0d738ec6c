// Keyboard access to the points of a chart: arrows move, Enter opens the trial, Escape leaves.

import { number } from "./formats.js";
import { follow, point } from "./opening.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };

// `points()`: ordered list of {trial, x, y, at: optional text for x}. `show(point or null)`: highlights a point.
export function walk({ figure, frame, state }, points, show) {
  let at = -1;
  frame.body.addEventListener("keydown", (event) => {
    if (event.target !== frame.body) return;
    const found = points();
    if (event.key in STEPS && found.length) {
      at = at < 0 || at >= found.length ? 0 : (at + STEPS[event.key] + found.length) % found.length;
      show(found[at]);
      frame.spoken.textContent = spoken(found[at]);
      point(figure, found[at].trial);
    } else if (event.key === "Enter" && found[at]) {
      follow(figure, state, found[at].trial, event);
    } else if (event.key === "Escape" && at >= 0) {
      at = -1;
      point(figure, null);
      show(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function spoken({ trial, x, y, at }) {
  return `trial ${trial}: ${number(y)} at ${at ?? number(x)}`;
}
