// A select above a chart's body.

import { part } from "./frame.js";

// `fixed`: permanent options, {value: text}. `changed(value)`: called when the reader selects an option.
export function choosing(figure, text, fixed, changed) {
  const bar = part(figure, "div", "chart-choices");
  figure.querySelector("figcaption").after(bar);
  const label = document.createElement("label");
  const control = document.createElement("select");
  control.setAttribute("aria-label", text);
  label.append(`${text} `, control);
  bar.append(label);
  control.addEventListener("change", () => changed(control.value));
  return { control, offer: (names, value) => offer(control, fixed, names, value) };
}

// Options are never removed: an answer about one parameter does not contain the others.
function offer(control, fixed, names, value) {
  const known = [...control.options].map((option) => option.value);
  const wanted = new Set([...Object.keys(fixed), ...known, ...names, value]);
  if (known.length !== wanted.size) {
    control.replaceChildren(...[...wanted].map((name) => new Option(Object.hasOwn(fixed, name) ? fixed[name] : name, name)));
  }
  control.value = value;
}
