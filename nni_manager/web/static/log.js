// The end of a growing log, from the page's event stream: file, follow, wrap, search, download. The page keeps at most a
// million characters; the download is complete.

import { live } from "./live.js";

const MOST = 1_000_000;
/** Number of characters dropped at a time above the maximum, so that not every line costs a copy. */
const SLACK = 200_000;
const MOST_MARKS = 2000;

let pane = null;
let chosen = null;
/** The shown text, and the offset of its end in the file. */
let text = "";
let end = null;
let leftOut = 0;
let found = [];
let current = -1;

/** Shows the log of a part of the page; null: stops. */
export function openLog(part) {
  pane = part?.querySelector(".log-pane[data-api]") ?? null;
  if (!pane) {
    if (chosen) live.ask({ log: null });
    chosen = null;
    return;
  }
  pane.querySelector(".log-tools").hidden = false;
  const [trial, attempt, ...name] = pane.dataset.log.split(".");
  for (const link of pane.querySelectorAll("[data-log-name], [data-log-attempt]")) link.addEventListener("click", clicked);
  pane.querySelector("#log-wrap").addEventListener("change", wrap);
  pane.querySelector("#log-follow").addEventListener("change", toEnd);
  pane.querySelector("#log-text").addEventListener("scroll", scrolled, { passive: true });
  const search = pane.querySelector("#log-search");
  search.addEventListener("input", mark);
  search.addEventListener("keydown", searched);
  choose(Number(trial), Number(attempt), name.join("."));
}

function choose(trial, attempt, name) {
  chosen = { trial, attempt, name };
  text = "";
  end = null;
  leftOut = 0;
  note("reading …");
  const query = `attempt=${attempt}`;
  pane.querySelector("#log-download").href = `${pane.dataset.api}/${encodeURIComponent(name)}?${query}`;
  for (const link of pane.querySelectorAll("[data-log-name]")) current_(link, link.dataset.logName === name);
  for (const link of pane.querySelectorAll("[data-log-attempt]")) current_(link, Number(link.dataset.logAttempt) === attempt);
  draw();
  live.ask({ log: `${trial}.${attempt}.${name}` });
}

function current_(link, is) {
  if (is) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}

function clicked(event) {
  if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const { logName, logAttempt } = event.currentTarget.dataset;
  choose(chosen.trial, Number(logAttempt ?? chosen.attempt), logName ?? chosen.name);
}

// Events

live.on("log", (data) => {
  if (!pane?.isConnected || !chosen) return;
  if (data.trial !== chosen.trial || data.attempt !== chosen.attempt || data.name !== chosen.name) return;
  if (data.trouble) return void note(data.trouble);
  take(data);
});

function take(data) {
  const isContinued = end !== null && data.offset === end;
  if (end === null || data.offset < end) {
    text = ""; // start of the log, or the stream was reopened
    leftOut = data.offset;
  } else if (!isContinued) {
    text += `\n… ${size(data.offset - end)} not shown …\n`;
  }
  end = data.end;
  const added = readable(data.text);
  const isAppended = isContinued && !found.length && text.length + added.length < MOST + SLACK;
  text += added;
  if (text.length > MOST + SLACK) cut();
  note(sentence(data.size));
  if (isAppended && !pane.querySelector("#log-search").value && !added.includes("\r")) append(added);
  else draw();
}

function cut() {
  const start = text.indexOf("\n", text.length - MOST) + 1 || text.length - MOST;
  leftOut += start;
  text = text.slice(start);
}

/** Removes terminal colours. Of a line that is overwritten, such as a progress bar, keeps the last version. */
function readable(raw) {
  // eslint-disable-next-line no-control-regex
  return raw.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "").replace(/\r+\n/g, "\n");
}

function lines(raw) {
  return raw.includes("\r") ? raw.replace(/^.*\r(?=.)/gm, "").replaceAll("\r", "") : raw;
}

function sentence(bytes) {
  if (!bytes) return "empty so far";
  return leftOut ? `the end of ${size(bytes)}; download the file to see all of it` : size(bytes);
}

// As in `domain/formats.py`.
function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let amount = bytes / 1000;
  while (amount >= 999.5 && units.length > 1) {
    amount /= 1000;
    units.shift();
  }
  return `${Number(amount.toPrecision(3))} ${units[0]}`;
}

// Drawing

function box() {
  return pane.querySelector("#log-text");
}

function note(words) {
  const place = pane.querySelector("#log-note");
  if (place.textContent !== words) place.textContent = words;
}

function append(added) {
  const place = box();
  const last = place.lastChild;
  if (last?.nodeType === Node.TEXT_NODE) last.appendData(added);
  else place.append(added);
  toEnd();
}

function draw() {
  box().hidden = false;
  mark();
  toEnd();
}

function toEnd() {
  if (pane.querySelector("#log-follow").checked) box().scrollTop = box().scrollHeight;
}

// Scrolling up stops following; scrolling to the end resumes it.
function scrolled() {
  const place = box();
  const isAtEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 24;
  const follow = pane.querySelector("#log-follow");
  if (follow.checked !== isAtEnd) follow.checked = isAtEnd;
}

function wrap() {
  box().dataset.wrap = pane.querySelector("#log-wrap").checked ? "on" : "off";
}

// Searching

function mark() {
  const word = pane.querySelector("#log-search").value.toLowerCase();
  const shown = lines(text);
  const place = box();
  found = [];
  current = -1;
  if (!word) {
    place.textContent = shown;
    pane.querySelector("#log-found").textContent = "";
    return;
  }
  const lower = shown.toLowerCase();
  const parts = document.createDocumentFragment();
  let from = 0;
  for (let at = lower.indexOf(word); at >= 0 && found.length < MOST_MARKS; at = lower.indexOf(word, from)) {
    const hit = document.createElement("mark");
    hit.textContent = shown.slice(at, at + word.length);
    parts.append(shown.slice(from, at), hit);
    found.push(hit);
    from = at + word.length;
  }
  parts.append(shown.slice(from));
  place.replaceChildren(parts);
  go(found.length - 1);
}

function searched(event) {
  if (event.key === "Escape") {
    event.currentTarget.value = "";
    mark();
  }
  if (event.key !== "Enter" || !found.length) return;
  event.preventDefault();
  go((current + (event.shiftKey ? found.length - 1 : 1)) % found.length);
}

function go(index) {
  const total = found.length;
  const more = total === MOST_MARKS ? " or more" : "";
  pane.querySelector("#log-found").textContent = total ? `${index + 1} of ${total}${more}` : "not found";
  if (!total) return;
  found[current]?.classList.remove("here");
  current = index;
  found[current].classList.add("here");
  pane.querySelector("#log-follow").checked = false;
  const place = box();
  place.scrollTop = found[current].offsetTop - place.offsetTop - place.clientHeight / 2;
}
