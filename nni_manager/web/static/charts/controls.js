// The bar above the charts, with their shared settings. Each control sets a part of the page's address.

import { asked, entriesOf, isRange } from "./chart.js";
import { Feed } from "./feed.js";
import { many } from "./formats.js";
import { addressOf } from "./opening.js";

const TOP = [5, 10, 20, 50, 100];
const AXES = { number: "trial number", elapsed: "elapsed time", clock: "clock (UTC)" };
// The result keys change rarely.
const PAUSE_MS = 15_000;
const NAMED = { status: "status", q: "text", failure: "failure", selected: "selected" };

export function mount(bar, { state }) {
  // Defaults are not in the address.
  const setting = (name, usual) => (value) => state.set({ [name]: value === usual ? null : value });
  const keys = select("result key", {}, (value) => state.set({ key: value === usualOf(keys) ? null : value }));
  const parts = {
    top: select("best", Object.fromEntries(TOP.map((each) => [each, `top ${each}`])), setting("top", "20")),
    key: keys,
    x: select("x axis", AXES, setting("x", "number")),
    logy: box("log scale of results", (on) => state.set({ logy: on ? "1" : null })),
    clip: box("hide outliers", (on) => state.set({ clip: on ? "1" : null })),
    chips: chips(),
    link: document.createElement("a"),
  };
  const { top, key, x, logy, clip } = parts;
  bar.replaceChildren(...[top, key, x, logy, clip].map(({ label }) => label), parts.chips, parts.link);
  const show = () => {
    shown(parts, state);
    parts.link.href = `${addressOf(bar, "")}?${asked(state)}`.replace("/?", "?");
  };
  parts.link.textContent = "These trials as a table";
  parts.link.hidden = document.getElementById("trials-part") !== null;
  const feed = new Feed(bar, () => `${bar.dataset.api}/columns?${asked(state)}`, {
    answer: (columns) => offer(keys, columns, state),
    wait: () => {},
    fail: () => {},
  }, { pauseMs: PAUSE_MS });
  state.onChange(() => {
    show();
    feed.refresh();
  });
  document.addEventListener("chartanswer", ({ detail }) => hidden(parts.clip, detail));
  show();
}

function shown({ top, key, x, logy, clip, chips }, state) {
  top.control.value = state.get("top") ?? "20";
  key.control.value = state.get("key") ?? usualOf(key);
  x.control.value = state.get("x") ?? "number";
  logy.control.checked = state.get("logy") === "1";
  clip.control.checked = state.get("clip") === "1";
  if (!clip.control.checked) clip.words.textContent = "hide outliers";
  list(chips, state);
}

// The result keys that trials report; hidden if there is only one.
function offer(keys, { keys: found, key: usual }, state) {
  const names = found.map(({ name }) => name);
  keys.label.hidden = names.length < 2;
  if (JSON.stringify(names) === keys.control.dataset.names) return;
  Object.assign(keys.control.dataset, { usual, names: JSON.stringify(names) });
  keys.control.replaceChildren(...names.map((name) => new Option(name, name)));
  keys.control.value = state.get("key") ?? usual;
}

// The default result key; empty until the experiment is known.
function usualOf({ control }) {
  return control.dataset.usual ?? "";
}

function hidden({ control, words }, { clipped }) {
  if (control.checked && clipped !== undefined) words.textContent = `hide outliers (${clipped} hidden)`;
}

// The filters as buttons; each removes its filter.
function list(place, state) {
  const found = entriesOf(state).filter(([name, value]) => value && (name in NAMED || isRange(name)));
  const made = found.map(([name, value]) => {
    const remove = () => state.set({ [name]: null, page: null }, { push: true });
    return chip(`${NAMED[name] ?? name.slice(2)} ${inWords(value)}`, remove);
  });
  const all = Object.fromEntries([...found.map(([name]) => [name, null]), ["page", null]]);
  if (found.length > 1) made.push(chip(`all ${many(found.length, "filter")}`, () => state.set(all, { push: true })));
  const focused = [...place.children].indexOf(document.activeElement);
  place.replaceChildren(...made);
  if (focused >= 0) place.children[Math.min(focused, made.length - 1)]?.focus();
}

function inWords(value) {
  const [, low, high] = /^([^,"]*)\.\.([^,"]*)$/.exec(value) ?? [];
  if (low === undefined) return value.split(",").join(", ");
  return low && high ? `${low} to ${high}` : low ? `≥ ${low}` : `≤ ${high}`;
}

function chip(text, remove) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "chip";
  button.textContent = `${text} ✕`;
  button.setAttribute("aria-label", `Remove the filter: ${text}`);
  button.addEventListener("click", remove);
  return button;
}

function chips() {
  const place = document.createElement("span");
  place.className = "chips";
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "Filters");
  return place;
}

function select(text, options, changed) {
  const control = document.createElement("select");
  for (const [value, words] of Object.entries(options)) control.append(new Option(words, value));
  control.setAttribute("aria-label", text);
  control.addEventListener("change", () => changed(control.value));
  return labelled(text, control, [`${text} `, control]);
}

function box(text, changed) {
  const control = document.createElement("input");
  control.type = "checkbox";
  control.addEventListener("change", () => changed(control.checked));
  return labelled(text, control, [control, " "]);
}

function labelled(text, control, content) {
  const label = document.createElement("label");
  const words = document.createElement("span");
  label.append(...content);
  if (control.type === "checkbox") {
    words.textContent = text;
    label.append(words);
  }
  return { label, control, words };
}
