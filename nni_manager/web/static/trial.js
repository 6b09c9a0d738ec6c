// One trial, on its page and in the drawer beside the table: its log, its copies, the way to the trials beside it.

import { openLog } from "./log.js";

const drawer = document.getElementById("drawer");

function begin(part) {
  for (const button of part.querySelectorAll("button[data-copy][hidden]")) button.hidden = !navigator.clipboard;
  openLog(part);
}

// Where the reader is elsewhere, the focus stays there.
function filled() {
  begin(drawer);
  drawer.scrollTop = 0;
  const active = document.activeElement;
  if (!active || active === document.body || active.closest("a[data-trial], tr[data-trial]")) {
    drawer.querySelector("#trial-title")?.focus({ preventScroll: true });
  }
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
  // closed: its log is not read any longer
  new MutationObserver(() => drawer.firstChild || openLog(null)).observe(drawer, { childList: true });
} else {
  begin(document);
}
