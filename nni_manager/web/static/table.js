// The table of trials: selecting, ticking and opening rows, forms and links without a reload, stored columns. Without this
// script every link and form loads a page.

import { close, mark, open } from "./drawer.js";
import { live } from "./live.js";
import { state } from "./state.js";

const part = document.getElementById("trials-part");
const COLUMNS = `nni_manager.columns.${document.body.dataset.id}`;
/** As in `table_pages.py`. */
const MOST_COMPARED = 20;
let current = null;
let seen = matching();

function rows() {
  return [...part.querySelectorAll("tr[data-trial]")];
}

// Keys

function move(step) {
  const all = rows();
  const at = all.findIndex((row) => row.dataset.trial === current);
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  if (!next) return;
  current = next.dataset.trial;
  choose();
  next.scrollIntoView({ block: "nearest" });
  if (!document.getElementById("drawer").hidden) open(current);
}

function choose() {
  for (const row of rows()) row.classList.toggle("is-current", row.dataset.trial === current);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) return void close();
  if (event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog")) return;
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "x" && current) part.querySelector(`#tick-${current}`)?.click();
  else if (event.key === "Enter" && current && !event.target.closest?.("a, button, summary, input")) open(current);
}

// Rows

function clicked(event) {
  const link = event.target.closest("a[data-go], .pager a, #clear, #default-columns");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  if (link && isPlain) {
    event.preventDefault();
    if (link.id === "default-columns") forget();
    return void live.go(link.href);
  }
  const row = event.target.closest("tr[data-trial]");
  const other = event.target.closest("button, input, summary, .panel, a:not(.open)");
  if (!row || other || !isPlain || String(getSelection())) return;
  event.preventDefault();
  current = row.dataset.trial;
  choose();
  open(current);
}

// Ticked trials are in the address, so they persist across pages, and charts highlight them.
function ticked(event) {
  if (event.target.name !== "tick") return;
  const chosen = new Set((state.get("selected") ?? "").split(",").filter(Boolean));
  chosen[event.target.checked ? "add" : "delete"](event.target.value);
  state.set({ selected: [...chosen].join(",") });
}

function offer() {
  const button = document.getElementById("compare");
  if (!button) return;
  const count = part.querySelectorAll("input[name=tick]:checked").length;
  button.disabled = count < 2;
  const words = count > MOST_COMPARED ? `${count} ticked: only the first ${MOST_COMPARED} are compared` : `${count} ticked`;
  document.getElementById("compare-words").textContent = count ? words : "tick two or more";
}

// Forms

function submitted(event) {
  const form = event.target;
  if (!["filter", "columns", "view"].includes(form.id)) return;
  event.preventDefault();
  const values = new URLSearchParams(new FormData(form));
  if (state.get("trial")) values.set("trial", state.get("trial"));
  live.go(`${form.action}?${values}`).then(() => form.id === "columns" && remember());
}

function remember() {
  try {
    localStorage.setItem(COLUMNS, state.get("columns") ?? "");
  } catch {
    // not stored
  }
}

function forget() {
  try {
    localStorage.removeItem(COLUMNS);
  } catch {
    // nothing is stored
  }
}

function restore() {
  try {
    const columns = localStorage.getItem(COLUMNS);
    if (columns && state.get("columns") === null) state.set({ columns });
  } catch {
    // nothing is stored
  }
}

// New trials

function matching() {
  return Number(document.getElementById("matching")?.dataset.matching ?? 0);
}

// New rows appear only if the reader is at the top of the first page; otherwise a note states their number.
function replaced() {
  choose();
  mark();
  offer();
  const isAtTop = scrollY < 200 && (state.get("page") ?? "1") === "1";
  const more = matching() - seen;
  const button = document.getElementById("new-trials") ?? made();
  button.hidden = isAtTop || more <= 0;
  button.textContent = `${more} new ▴`;
  if (isAtTop) seen = matching();
}

function made() {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", id: "new-trials", className: "float", hidden: true });
  button.addEventListener("click", () => {
    seen = matching();
    button.hidden = true;
    scrollTo({ top: 0 });
    state.set({ page: null });
  });
  document.body.append(button);
  return button;
}

addEventListener("keydown", pressed);
document.addEventListener("click", clicked);
document.addEventListener("change", (event) => {
  ticked(event);
  if (event.target.name === "tick") offer();
  if (event.target.form?.id === "view") event.target.form.requestSubmit();
});
document.addEventListener("submit", submitted);
document.addEventListener("replaced", replaced);
restore();
mark();
offer();
