// Keeps a page up to date. After an event of the page's stream, the page is fetched again, and every element with
// `data-live` and an id is replaced by the element with the same id, if it differs. `data-source`: address of such an
// element, by default the page's. Without this script the page does not change after loading.

import { replace } from "./fragments.js";
import { state } from "./state.js";
import { Stream } from "./stream.js";

// Together with the delay of the stream, values are at most a second late.
const MIN_PAUSE_MS = 600;
// One slow fetch, for example while the machine was suspended, must not delay the next by minutes.
const MOST_PAUSE_MS = 10_000;
const RETRY_MS = 3000;
const REFRESH_KEY = "nni_manager.refresh";

const notice = document.getElementById("connection");
const revisions = new Set();
const listeners = new Map();
// ETag of the last fetch, by address: the server does not send an unchanged page again.
const tags = new Map();
let revision = null;
let status = null;
let chartPause = 1000;
let timer = null;
let isFetching = false;
// Number of times that the reader changed the state of the page.
let gone = 0;
let isStale = false;
// The reader waits, so this fetch ignores the interval.
let isWanted = false;
// Time of the last successful refresh.
let asOf = Date.now();
let isCurrent = true;

const address = document.body.dataset.stream;
const stream = address ? new Stream(address, { onOpen: connected, onLost: disconnected, onEvent: received }) : null;

export const live = {
  /** The experiment's revision in the last event; null: none yet. */
  get revision() {
    return revision;
  },

  /** Milliseconds between two questions of one chart; grows with the number of readers of the experiment. */
  get chartPause() {
    return chartPause;
  },

  /** Calls back with each new revision, and {isTurn: the status has changed}. */
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

  /** Sets further parameters of the stream, such as `{log: "3.1.stdout"}`; null removes one. Reopens the stream. */
  ask(values) {
    stream?.ask(values);
  },

  /** Shows another state of this page, requested by a form or a link; the server may redirect. */
  async go(url) {
    const mine = ++gone;
    try {
      const answer = await fetch(url, { headers: { Accept: "text/html" } });
      if (!answer.ok && answer.status !== 400) throw new Error(`status ${answer.status}`);
      const html = await answer.text();
      if (mine !== gone) return; // the reader has requested another one since
      if (answer.ok) state.replaceAll(new URL(answer.url).searchParams, { push: true, quiet: true });
      else return void location.assign(url); // the page shows the error
      replace(html, "");
      tags.delete("");
      document.dispatchEvent(new Event("refreshed"));
    } catch {
      if (mine === gone) location.assign(url);
    }
  },

  /** Refreshes the page at once. */
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
  if (data.closed) stream.rest(); // no further event comes, unless the experiment is resumed
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

// Also while the browser is offline. `isRefused`: the server answered, but without a stream; the page states the reason.
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

/** Milliseconds between two fetches. 0: at each change; null: only on request. */
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
  if (isFetching || !isStale || document.hidden) return; // when the page is shown again, the stream starts with the state
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

// Whether the page is up to date. A failed fetch is repeated, because no further event may come.
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
  if (url !== addressOf(source)) return void (isStale = true); // the reader has navigated in the meantime
  if (answer.status === 304) return;
  if (!source && (answer.status === 404 || answer.status === 401)) location.reload(); // the page states the reason
  else if (answer.ok || answer.status === 400) {
    replace(html, source);
    if (answer.headers.get("ETag")) tags.set(source, { url, tag: answer.headers.get("ETag") });
  }
  else throw new Error(`status ${answer.status}`);
}

// Controls

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
      // not stored
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

// Scrolls to the current tab if the tabs do not fit.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
startControl();
setInterval(tellAge, 1000);
state.onChange((_, { isShown }) => isShown || live.refresh());
stream?.start();
