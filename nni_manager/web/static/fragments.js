// Replaces parts of the page by those of a fetched page. Opened, ticked, edited, focused and scrolled elements keep their
// state; unchanged elements are not touched.

import { patch } from "./patch.js";

/** The last content that the server sent for a part, to distinguish its changes from those of scripts and reader. */
const sent = new WeakMap();

/** `source`: address of the parts; "": the page's address. */
export function replace(html, source) {
  const fetched = new DOMParser().parseFromString(html, "text/html");
  const changed = [];
  for (const part of document.querySelectorAll("[data-live]")) {
    if ((part.dataset.source ?? "") !== source) continue;
    const next = fetched.getElementById(part.id);
    if (next && replaceOne(part, next)) changed.push(part);
  }
  if (!source && fetched.title && fetched.title !== document.title) document.title = fetched.title;
  // after all parts, because listeners may read sizes
  for (const part of changed) part.dispatchEvent(new CustomEvent("replaced", { bubbles: true }));
}

function replaceOne(part, next) {
  const before = sent.get(part);
  if (before ? before.isEqualNode(next) : part.innerHTML === next.innerHTML) return false;
  const focused = focusIn(part);
  const said = new Map([...part.querySelectorAll("[data-keep][id]")].map((one) => [one.id, saidOf(one)]));
  sent.set(part, next);
  if (!before || !patch(part, before, next)) replaceAll(part, next);
  for (const field of part.querySelectorAll("input, select, textarea")) reset(field, said);
  refocus(part, focused);
  return true;
}

function replaceAll(part, next) {
  const kept = keep(part);
  part.innerHTML = next.innerHTML;
  restore(part, kept);
}

function keep(part) {
  return {
    open: [...part.querySelectorAll("details[id]")].map((one) => [one.id, one.open]),
    values: [...part.querySelectorAll("[data-keep][id]")].map((one) => [one.id, one.value, one.checked]),
    scrolled: [...part.querySelectorAll(".scroll[id]")].map((one) => [one.id, one.scrollLeft, one.scrollTop]),
  };
}

function restore(part, { open, values, scrolled }) {
  const find = (id) => part.querySelector(`#${CSS.escape(id)}`);
  for (const [id, isOpen] of open) find(id)?.toggleAttribute("open", isOpen);
  for (const [id, value, checked] of values) restoreField(find(id), value, checked);
  for (const [id, left, top] of scrolled) find(id)?.scrollTo(left, top);
}

function restoreField(field, value, checked) {
  if (!field) return;
  if (isTicked(field)) field.checked = checked;
  else field.value = value;
}

// The server's value of a field.
function saidOf(field) {
  if (isTicked(field)) return field.defaultChecked;
  if (field.localName !== "select") return field.defaultValue;
  return [...field.options].filter((one) => one.defaultSelected).map((one) => one.value).join();
}

// Fields get the server's value, except while they are in use. A field with `data-keep` keeps the reader's input until the
// server's value changes. `said`: previous server values, by id.
function reset(field, said) {
  const isKept = "keep" in field.dataset && (!said.has(field.id) || said.get(field.id) === saidOf(field));
  if (isKept || field === document.activeElement) return;
  if (isTicked(field)) field.checked = field.defaultChecked;
  else if (field.localName === "select") for (const one of field.options) one.selected = one.defaultSelected;
  else if (field.value !== field.defaultValue) field.value = field.defaultValue;
}

function isTicked({ type }) {
  return type === "checkbox" || type === "radio";
}

function focusIn(part) {
  const active = document.activeElement;
  if (!part.contains(active)) return null;
  const caret = "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
  return { active, id: focusable(active)?.id, caret };
}

function refocus(part, focused) {
  if (!focused?.id || document.activeElement === focused.active) return;
  const found = part.querySelector(`#${CSS.escape(focused.id)}`);
  found?.focus({ preventScroll: true });
  if (found && focused.caret && focused.caret[0] !== null) found.setSelectionRange?.(...focused.caret);
}

function focusable(element) {
  return element.id ? element : element.closest("details[id]")?.querySelector("summary[id]");
}
