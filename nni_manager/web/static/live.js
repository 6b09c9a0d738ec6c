// Keeps a page fresh. When the page's one stream of events says that something changed, the page is fetched again, and
// every element with `data-live` and an id is replaced by its namesake, if that differs. `data-source`: the address from
// which such an element comes, if not the page's own. Without this script the page is as it was when it was loaded.

import { replace } from "./fragments.js";
import { state } from "./state.js";
import { Stream } from "./stream.js";

// With the time until the stream tells of a change, values are at most a second late.
const MIN_PAUSE_MS = 600;
// One fetch that took long, as of a machine that was suspended, must not leave the page as it was for minutes.
const MOST_PAUSE_MS = 10_000;
const RETRY_MS = 3000;
const REFRESH_KEY = "nni_manager.refresh";

const notice = document.getElementById("connection");
const revisions = new Set();
const listeners = new Map();
// The tag of what was fetched last, by its address: what the server would answer again is not sent again.
const tags = new Map();
let revision = null;
let status = null;
let chartPause = 1000;
let timer = null;
let isFetching = false;
// How often the reader went to another state of the page.
let gone = 0;
let isStale = false;
// The reader waits for it, whatever the time between two fetches.
let isWanted = false;
// Until this moment what is shown is how it is.
let asOf = Date.now();
let isCurrent = true;

const address = document.body.dataset.stream;
const stream = address ? new Stream(address, { onOpen: connected, onLost: disconnected, onEvent: received }) : null;

export const live = {
  /** The experiment's revision that the stream named last; null: none yet. */
  get revision() {
    return revision;
  },

  /** Milliseconds between two questions of one chart: longer the more readers the experiment has. */
  get chartPause() {
    return chartPause;
  },

  /** Calls back with the revision whenever it has changed, and {isTurn: the experiment has another status}. */
  onRevision(callback) {
    revisions.add(callback);
    return () => revisions.delete(callback);
  },

  /** Calls back with the data of every event of this kind: "state", "log". */
  on(kind, callback) {
    if (!listeners.has(kind)) listeners.set(kind, new Set());
    listeners.get(kind).add(callback);
    return () => listeners.get(kind).delete(callback);
  },

  /** Asks the stream for more: `{log: "3.1.stdout"}`; null: no more of it. The stream is opened again with it. */
  ask(values) {
    stream?.ask(values);
  },

  /** Shows another state of this page, as a form or a link asks for it; the server may redirect. */
  async go(url) {
    const mine = ++gone;
    try {
      const answer = await fetch(url, { headers: { Accept: "text/html" } });
      if (!answer.ok && answer.status !== 400) throw new Error(`status ${answer.status}`);
      const html = await answer.text();
      if (mine !== gone) return; // the reader has asked for another one since
      if (answer.ok) state.replaceAll(new URL(answer.url).searchParams, { push: true, quiet: true });
      else return void location.assign(url); // the page says what is wrong
      replace(html, "");
      tags.delete("");
      document.dispatchEvent(new Event("refreshed"));
    } catch {
      if (mine === gone) location.assign(url);
    }
  },

  /** Fetches what is shown at once. */
  refresh() {
    isStale = true;
    isWanted = true;
    return refreshNow();
  },
};

// Events

function received(kind, data) {
  for (const callback of listeners.get(kind) ?? []) callback(data);
  if (kind !== "state") return;
  chartPause = data.chartPauseMs ?? chartPause;
  if (data.closed) stream.rest(); // there will be no other, unless it is resumed
  if (String(data.revision) !== revision) {
    revision = String(data.revision);
    const now = `${data.status} ${data.hold?.code} ${data.closed}`;
    const isTurn = status !== null && status !== now;
    status = now;
    for (const callback of revisions) callback(revision, { isTurn });
  }
  isStale = true;
  refreshSoon();
}

function connected() {
  if (isCurrent || !isFetching) current();
}

function current() {
  isCurrent = true;
  asOf = Date.now();
  if (notice) notice.hidden = true;
}

// Also while the browser itself is offline. `isRefused`: the server answered, but not with a stream; the page says why.
function disconnected({ isRefused = false } = {}) {
  if (isCurrent) asOf = Date.now();
  isCurrent = false;
  if (notice) {
    notice.textContent = `not connected; last updated ${new Date(asOf).toISOString().slice(11, 19)} UTC`;
    notice.hidden = false;
  }
  if (isRefused) {
    isStale = true;
    refreshSoon();
  }
}

// Fetching

/** Milliseconds between two fetches: 0 as soon as something changes; null: only by hand. */
function interval() {
  const chosen = document.getElementById("refresh")?.value ?? "0";
  return chosen === "off" ? null : Number(chosen) * 1000;
}

function refreshSoon() {
  const pause = interval();
  if (pause === null || timer) return;
  timer = setTimeout(refreshNow, isFetching ? MIN_PAUSE_MS : Math.max(0, asOf + pause - Date.now()));
}

async function refreshNow() {
  clearTimeout(timer);
  timer = null;
  if (isFetching || !isStale || document.hidden) return; // when it is shown again, the stream begins with the state
  isFetching = true;
  const isForReader = isWanted;
  isStale = isWanted = false;
  const begun = performance.now();
  const isShown = await fetchAll();
  if (!isShown) isWanted ||= isForReader;
  const took = performance.now() - begun;
  const pause = Math.min(Math.max(MIN_PAUSE_MS, 3 * took), MOST_PAUSE_MS);
  await new Promise((resolve) => setTimeout(resolve, isShown ? pause : RETRY_MS));
  isFetching = false;
  if (isWanted) refreshNow();
  else if (isStale) refreshSoon();
}

// Whether what is shown is how it is now. After a fetch that failed another one follows: there may be no further event.
async function fetchAll() {
  const sources = new Set([...document.querySelectorAll("[data-live]")].map((one) => one.dataset.source ?? ""));
  try {
    for (const source of sources) await fetchOne(source);
    current();
    document.dispatchEvent(new Event("refreshed"));
    return true;
  } catch {
    disconnected();
    isStale = true;
    return false;
  }
}

function addressOf(source) {
  return source || location.pathname + location.search;
}

async function fetchOne(source) {
  const url = addressOf(source);
  const known = tags.get(source);
  const headers = { Accept: "text/html", ...(known?.url === url ? { "If-None-Match": known.tag } : {}) };
  const answer = await fetch(url, { headers });
  const html = await answer.text();
  if (url !== addressOf(source)) return void (isStale = true); // meanwhile the reader went on
  if (answer.status === 304) return;
  if (!source && (answer.status === 404 || answer.status === 401)) location.reload(); // the page itself says why
  else if (answer.ok || answer.status === 400) {
    replace(html, source);
    if (answer.headers.get("ETag")) tags.set(source, { url, tag: answer.headers.get("ETag") });
  }
  else throw new Error(`status ${answer.status}`);
}

// The reader's part

function remembered() {
  try {
    return localStorage.getItem(REFRESH_KEY);
  } catch {
    return null;
  }
}

function startControl() {
  const control = document.getElementById("refresh");
  if (!control) return;
  control.value = remembered() ?? "0";
  if (!control.value) control.value = "0";
  control.closest("[hidden]")?.removeAttribute("hidden");
  control.addEventListener("change", () => {
    try {
      localStorage.setItem(REFRESH_KEY, control.value);
    } catch {
      // not remembered
    }
    clearTimeout(timer);
    timer = null;
    live.refresh();
  });
}

function tellAge() {
  const place = document.getElementById("updated");
  if (!place || document.hidden) return;
  const seconds = isCurrent && stream?.isOpen && !isStale ? 0 : Math.round((Date.now() - asOf) / 1000);
  const text = seconds < 2 ? "up to date" : `updated ${seconds} s ago`;
  if (place.textContent !== text) place.textContent = text;
}

// Where tabs do not fit, the present one is in sight.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
startControl();
setInterval(tellAge, 1000);
state.onChange((_, { isShown }) => isShown || live.refresh());
stream?.start();
