// A select above a chart's body.

import { part } from "./frame.js";

// `fixed`: options that are always there, {value: words}. `changed(value)` is called when the reader chooses.
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

// Names once offered stay: an answer about one parameter does not take the others away.
function offer(control, fixed, names, value) {
  const known = [...control.options].map((option) => option.value);
  const wanted = new Set([...Object.keys(fixed), ...known, ...names, value]);
  if (known.length !== wanted.size) {
    control.replaceChildren(...[...wanted].map((name) => new Option(Object.hasOwn(fixed, name) ? fixed[name] : name, name)));
  }
  control.value = value;
}
