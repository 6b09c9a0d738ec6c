// Axes with a linear and a logarithmic scale: a button per axis next to the chart's title, and keys on the chart.

import { finite } from "./formats.js";
import { part } from "./frame.js";

// A clock axis cannot be logarithmic.
const OF_TIME = new Set(["logx", "logstep"]);
const KEYS = { l: "y", L: "x" };

// Whether the axis with this name in the page's address is logarithmic.
export function isLog(state, name) {
  return state.get(name) === "1" && !(OF_TIME.has(name) && state.get("x") === "clock");
}

// Whether a log axis cannot show a value.
export function hasNoPlace(value) {
  return finite(value) && value <= 0;
}

// Part of the title that states the number of values that a log axis hides.
export function leftOut(count) {
  return count ? ` (log axis: ${count} not above zero hidden)` : "";
}

// `axes`: {x and y: name in the address}; a missing axis is always linear. Returns a function that unsubscribes.
export function switches(figure, frame, state, axes) {
  const place = part(figure, "span", "chart-logs");
  frame.tools.after(place);
  const title = frame.title.textContent;
  const made = Object.entries(axes).map(([axis, name]) => [button(axis, title, () => toggle(axis)), name]);
  const toggle = (axis) => {
    const name = axes[axis];
    state.set({ [name]: isLog(state, name) ? null : "1" });
    frame.spoken.textContent = `the ${axis} axis is ${isLog(state, name) ? "logarithmic" : "linear"}`;
  };
  const show = () => {
    for (const [one, name] of made) {
      one.setAttribute("aria-pressed", String(isLog(state, name)));
      one.hidden = OF_TIME.has(name) && state.get("x") === "clock";
    }
  };
  place.replaceChildren(...made.map(([one]) => one));
  frame.body.addEventListener("keydown", (event) => {
    const axis = KEYS[event.key];
    if (event.target !== frame.body || !(axis in axes) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    toggle(axis);
  });
  show();
  return state.onChange(show);
}

// Many charts have such a button, so its label contains the chart's title.
function button(axis, title, press) {
  const made = document.createElement("button");
  made.setAttribute("aria-label", `log ${axis}: ${title}`);
  Object.assign(made, { type: "button", textContent: `log ${axis}`, title: `Logarithmic ${axis} axis` });
  made.addEventListener("click", press);
  return made;
}
