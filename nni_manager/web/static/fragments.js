// Puts parts of a fetched page in the place of the present ones. What the reader opened, ticked, wrote, focused and
// scrolled to stays so.

/** `source`: the address that the parts came from; "": the page's own. */
export function replace(html, source) {
  const fetched = new DOMParser().parseFromString(html, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    if ((part.dataset.source ?? "") !== source) continue;
    const next = fetched.getElementById(part.id);
    if (next) replaceOne(part, next);
  }
  if (!source && fetched.title) document.title = fetched.title;
}

/** What the server last sent for a part, to tell its changes from those of scripts and of the reader. */
const sent = new WeakMap();

function replaceOne(part, next) {
  const html = next.innerHTML;
  if (html === (sent.get(part) ?? part.innerHTML)) return;
  const kept = keep(part);
  part.innerHTML = html;
  sent.set(part, html);
  restore(part, kept);
  part.dispatchEvent(new CustomEvent("replaced", { bubbles: true }));
}

function keep(part) {
  const active = document.activeElement;
  const has = part.contains(active);
  return {
    open: [...part.querySelectorAll("details[id]")].map((one) => [one.id, one.open]),
    values: [...part.querySelectorAll("[data-keep][id]")].map((one) => [one.id, one.value, one.checked]),
    focus: has ? focusable(active)?.id : null,
    caret: has && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null,
    scrolled: [...part.querySelectorAll(".scroll[id]")].map((one) => [one.id, one.scrollLeft, one.scrollTop]),
  };
}

function restore(part, { open, values, focus, caret, scrolled }) {
  const find = (id) => part.querySelector(`#${CSS.escape(id)}`);
  for (const [id, isOpen] of open) find(id)?.toggleAttribute("open", isOpen);
  for (const [id, value, checked] of values) restoreField(find(id), value, checked);
  for (const [id, left, top] of scrolled) find(id)?.scrollTo(left, top);
  const focused = focus && find(focus);
  focused?.focus({ preventScroll: true });
  if (focused && caret && caret[0] !== null) focused.setSelectionRange?.(...caret);
}

function restoreField(field, value, checked) {
  if (!field) return;
  if (field.type === "checkbox" || field.type === "radio") field.checked = checked;
  else field.value = value;
}

function focusable(element) {
  return element.id ? element : element.closest("details[id]")?.querySelector("summary[id]");
}
