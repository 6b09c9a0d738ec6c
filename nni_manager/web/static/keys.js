// Keyboard shortcuts and their list. Inactive while the reader types into a field.

const PAUSE_MS = 1200;
const goes = { o: "", t: "trials", f: "failures", c: "config", l: "log" };
let isGoing = false;

function isWriting(target) {
  return target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isWriting(event.target)) return;
  if (isGoing && event.key in goes) return void go(event);
  isGoing = event.key === "g";
  if (isGoing) setTimeout(() => (isGoing = false), PAUSE_MS);
  if (event.key === "?") document.getElementById("keys")?.showModal();
  if (event.key === "/") search(event);
}

function go(event) {
  isGoing = false;
  const here = document.body.dataset.experiment;
  if (!here) return;
  event.preventDefault();
  location.href = here + (goes[event.key] && `/${goes[event.key]}`);
}

function search(event) {
  const field = document.querySelector("[data-search]");
  if (!field) return;
  event.preventDefault();
  field.closest("details")?.setAttribute("open", "");
  field.focus();
  field.select();
}

addEventListener("keydown", pressed);
const button = document.getElementById("show-keys");
if (button) {
  button.hidden = false;
  button.addEventListener("click", () => document.getElementById("keys").showModal());
}
