// One trial: copying its parameters, and the drawer that shows it beside a table or a chart. A link with `data-trial`
// leads to the trial's page; where the page has room, its number is put into the address as `trial`, and the drawer shows
// it. Esc closes the drawer and returns the focus to where it was.

import { openLog } from "./log.js";
import { state } from "./state.js";

const NARROW = "(max-width: 60rem)";

// Copying

addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  button.textContent = (await copied(text)) ? "Copied" : "Select it and press Ctrl+C";
  setTimeout(() => (button.textContent = "Copy"), 2000);
});

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByField(text); // no clipboard without TLS, but on this machine
  }
}

function copiedByField(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus({ preventScroll: true });
  return isCopied;
}

function prepare(part) {
  for (const button of part.querySelectorAll("button[data-copy]")) button.hidden = false;
}

// The drawer

const here = document.body.dataset.experiment;
const drawer = document.getElementById("drawer");
let shownNumber = null;
let opener = null;

async function show() {
  const number = state.get("trial");
  if (number === shownNumber) return;
  shownNumber = number;
  if (!number || !/^\d+$/.test(number)) return void close();
  const answer = await fetch(`${here}/trials/${number}?drawer=1`, { headers: { Accept: "text/html" } }).catch(() => null);
  if (shownNumber !== number) return; // another one was asked for meanwhile
  const html = answer?.ok ? await answer.text() : "";
  fill(html || `<p class="notice error">Trial ${number} cannot be shown now.</p>`);
}

function fill(html) {
  const content = drawer.querySelector(".drawer-content");
  const wasHidden = drawer.hidden;
  const parsed = new DOMParser().parseFromString(html, "text/html");
  content.replaceChildren(...parsed.body.childNodes);
  prepare(content);
  drawer.hidden = false;
  document.body.classList.add("has-drawer");
  openLog(content);
  document.dispatchEvent(new CustomEvent("charts", { detail: content }));
  content.querySelector("#trial-title")?.focus({ preventScroll: !wasHidden });
  drawer.scrollTop = 0;
}

function close() {
  drawer.hidden = true;
  document.body.classList.remove("has-drawer");
  drawer.querySelector(".drawer-content").replaceChildren();
  openLog(null);
  const back = opener?.isConnected ? opener : document.getElementById(opener?.id ?? "");
  back?.focus({ preventScroll: true });
  opener = null;
}

function clicked(event) {
  const link = event.target.closest?.("a[data-trial]");
  const isPlain = event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || matchMedia(NARROW).matches) return;
  event.preventDefault();
  if (!drawer.contains(link)) opener = link;
  state.set({ trial: link.dataset.trial }, { push: true });
}

function pressed(event) {
  if (event.key !== "Escape" || drawer.hidden || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]") || event.target.closest?.("details.menu[open], input[type=search]")) return;
  state.set({ trial: null });
}

prepare(document);
if (drawer && here) {
  addEventListener("click", clicked);
  addEventListener("keydown", pressed);
  drawer.querySelector(".drawer-close").addEventListener("click", () => state.set({ trial: null }));
  state.onChange(show);
  show();
} else {
  openLog(document);
}
document.addEventListener("replaced", (event) => prepare(event.target));
