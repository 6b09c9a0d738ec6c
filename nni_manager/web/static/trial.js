// One trial, on its page and in the drawer beside the table: its log, its copies, the way to the trials beside it.

import { openLog } from "./log.js";

const drawer = document.getElementById("drawer");

function begin(part) {
  for (const button of part.querySelectorAll("button[data-copy][hidden]")) button.hidden = !navigator.clipboard;
  openLog(part);
}

let isOpen = false;

// When it opens, the focus goes to its title; from one trial to the next it stays where it is.
function filled() {
  begin(drawer);
  drawer.scrollTop = 0;
  if (!isOpen || document.activeElement === document.body) drawer.querySelector("#trial-title")?.focus({ preventScroll: true });
  isOpen = true;
}

// Its log is not read any longer.
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
