// One trial, on its page and in the drawer next to the table: log, copy buttons, links to the neighbouring trials.

import { openLog } from "./log.js";

const drawer = document.getElementById("drawer");

function begin(part) {
  for (const button of part.querySelectorAll("button[data-copy][hidden]")) button.hidden = !navigator.clipboard;
  openLog(part);
}

let isOpen = false;

// When a trial opens, its title gets the focus; moving to a neighbouring trial keeps the focus.
function filled() {
  begin(drawer);
  drawer.scrollTop = 0;
  if (!isOpen || document.activeElement === document.body) drawer.querySelector("#trial-title")?.focus({ preventScroll: true });
  isOpen = true;
}

// Stops reading its log.
function emptied() {
  if (drawer.firstChild) return;
  isOpen = false;
  openLog(null);
}

function clicked(event) {
  const link = event.target.closest?.("#drawer a[data-trial]");
  if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openTrial(link.dataset.trial);
}

async function openTrial(number) {
  const { open } = await import("./drawer.js");
  open(String(number));
}

if (drawer) {
  document.addEventListener("drawer", filled);
  document.addEventListener("click", clicked);
  document.addEventListener("opentrial", (event) => {
    event.preventDefault();
    openTrial(event.detail.number);
  });
  new MutationObserver(emptied).observe(drawer, { childList: true });
} else {
  begin(document);
}
