// The trial next to the table. Its number is in the address as `trial`, so it stays open after a reload.

import { state } from "./state.js";

const NARROW = matchMedia("(max-width: 60rem)");
const drawer = document.getElementById("drawer");
const here = document.body.dataset.experiment;
let shown = null;

/** The number of the open trial, as text; null: none. */
export function opened() {
  return state.get("trial");
}

/** Opens a trial next to the table; in a narrow window, its page. */
export function open(number) {
  if (NARROW.matches) location.assign(`${here}/trials/${number}`);
  else if (opened() !== number) change({ trial: number });
}

export function close() {
  const was = opened();
  if (was === null) return false;
  change({ trial: null });
  document.getElementById(`open-${was}`)?.focus({ preventScroll: true });
  return true;
}

function change(values) {
  const next = state.all();
  for (const [name, value] of Object.entries(values)) value === null ? next.delete(name) : next.set(name, value);
  state.replaceAll(next, { quiet: true });
  show();
}

async function show() {
  const number = opened();
  if (number === shown) return;
  shown = number;
  mark();
  if (number === null) {
    drawer.hidden = true;
    drawer.replaceChildren();
    return;
  }
  const source = `${here}/trials/${encodeURIComponent(number)}?drawer=1`;
  const html = await load(source);
  if (shown === number) fill(html, source);
}

async function load(source) {
  try {
    const answer = await fetch(source, { headers: { Accept: "text/html" } });
    return await answer.text();
  } catch {
    return "<p class='notice'>No answer from the manager. Press the row again.</p>";
  }
}

function fill(html, source) {
  const fetched = new DOMParser().parseFromString(html, "text/html");
  const part = fetched.querySelector("main") ?? fetched.body; // an error is a whole page
  drawer.replaceChildren(closer(), ...part.childNodes);
  for (const one of drawer.querySelectorAll("[data-live]")) one.dataset.source = source;
  drawer.hidden = false;
  document.dispatchEvent(new CustomEvent("drawer", { detail: { drawer } }));
}

function closer() {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "close", id: "close-drawer", textContent: "✕", title: "Close (Esc)" });
  button.setAttribute("aria-label", "Close");
  button.addEventListener("click", close);
  return button;
}

/** Marks the row of the open trial. */
export function mark() {
  for (const row of document.querySelectorAll("tr[data-trial]")) {
    row.classList.toggle("is-open", row.dataset.trial === opened());
  }
}

state.onChange(show);
if (NARROW.matches && opened() !== null) change({ trial: null });
else show();
