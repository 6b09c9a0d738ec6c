// The card of a trial, pinned to a chart: its parameters to read and copy, and a link to its page. It stays when the chart
// is redrawn, until Escape or its button closes it.

import "../copy.js";
import { choice, number as shown } from "./formats.js";
import { addressOf } from "./opening.js";

let pointed = null;

// Records the trial at the pointer or at the keyboard's position, which can then be pinned; null: none.
export function note(figure, number) {
  if (number !== null) pointed = { figure, number };
  else if (pointed?.figure === figure) pointed = null;
}

// `event`: the pointer's event, if any; the card opens on the other side.
export async function pin(figure, number, event) {
  unpin();
  const card = document.createElement("div");
  card.className = "chart-pin";
  card.tabIndex = -1;
  card.dataset.trial = number;
  card.setAttribute("role", "group");
  card.setAttribute("aria-label", `Trial ${number}`);
  card.classList.toggle("is-left", isRight(figure, event));
  card.append(heading(figure, number), "…");
  figure.append(card);
  card.focus({ preventScroll: true });
  try {
    fill(card, await load(figure, number));
  } catch (error) {
    card.lastChild.replaceWith(`The trial could not be loaded: ${error.message}`);
  }
}

function unpin() {
  const card = document.querySelector(".chart-pin");
  if (!card) return false;
  const had = card.contains(document.activeElement);
  const body = card.closest("figure").querySelector(".chart-body");
  card.remove();
  if (had) body.focus({ preventScroll: true });
  return true;
}

function isRight(figure, event) {
  const { left, width } = figure.getBoundingClientRect();
  return event?.clientX > left + width / 2;
}

function heading(figure, number) {
  const line = document.createElement("p");
  const link = document.createElement("a");
  Object.assign(link, { href: addressOf(figure, number), textContent: `Trial ${number}`, className: "chart-pin-link" });
  const close = document.createElement("button");
  Object.assign(close, { type: "button", textContent: "✕", title: "Close (Esc)" });
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", unpin);
  line.append(link, close);
  return line;
}

// Fetches the id by the number, then the trial.
async function load(figure, number) {
  const place = await json(`${figure.dataset.api}/trial?number=${number}`);
  const trial = await json(`${figure.dataset.api.replace(/\/analysis$/, "")}/trials/${place.id}`);
  return { ...trial, rank: place.rank, of: place.of };
}

async function json(address) {
  const response = await fetch(address, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

function fill(card, { id, status, finalValue, rank, of, parameters }) {
  const state = document.createElement("p");
  const result = finalValue === null ? [] : [`result ${shown(finalValue)}`];
  state.textContent = [id, status, ...result, ...(rank ? [`rank ${rank} of ${of}`] : [])].join(" · ");
  const copy = document.createElement("button");
  Object.assign(copy, { type: "button", textContent: "copy parameters", hidden: !navigator.clipboard });
  copy.dataset.copy = JSON.stringify(parameters);
  card.lastChild.replaceWith(state, table(parameters ?? {}), copy);
}

function table(parameters) {
  const list = document.createElement("dl");
  for (const [name, value] of Object.entries(parameters)) {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    text.textContent = typeof value === "number" ? shown(value) : choice(value);
    list.append(term, text);
  }
  return list;
}

function isWriting(target) {
  return Boolean(target.closest?.("input:not([type=checkbox]), textarea, select, dialog"));
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
  if (event.key === "Escape" && unpin()) event.stopPropagation(); // closes nothing else
  else if (event.key === "p" && pointed) pin(pointed.figure, pointed.number);
}

addEventListener("keydown", pressed, { capture: true });
