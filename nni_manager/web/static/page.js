// Keeps an experiment's page fresh: when the stream of events says that something changed, the part of the page that
// changes is fetched again. Without this script the page is as it was when it was loaded; everything else works.

const live = document.getElementById("live");
const notice = document.getElementById("connection");
const PAUSE_MS = 1000;
const RETRY_MS = 3000;

let source = null;
let timer = null;
let isStale = false;
let isFetching = false;
// What is shown is how it is; once that is not certain any more, `asOf` says how long it was.
let isCurrent = true;
let asOf = new Date();

function follow() {
  if (!live.dataset.events || document.hidden || source) return;
  source = new EventSource(live.dataset.events);
  source.addEventListener("state", (event) => {
    if (JSON.parse(event.data).status === "STOPPED") unfollow(); // there will be no other; do not ask again
    isStale = true;
    refreshSoon();
  });
  source.onopen = connected;
  source.onerror = () => {
    disconnected();
    if (source?.readyState === EventSource.CLOSED) followAgain(); // it was refused; else it connects again by itself
  };
}

function unfollow() {
  doubt();
  source?.close();
  source = null;
}

// Refused with a status that an event source does not tell; whoever asks for the page is told.
function followAgain() {
  unfollow();
  isStale = true;
  refreshSoon();
  setTimeout(follow, RETRY_MS);
}

function connected() {
  isCurrent = true;
  notice.hidden = true;
}

function disconnected() {
  doubt();
  notice.textContent = `not connected; shown as of ${asOf.toISOString().slice(11, 19)} UTC`;
  notice.hidden = false;
}

function doubt() {
  if (isCurrent) asOf = new Date();
  isCurrent = false;
}

function refreshSoon() {
  timer ??= setTimeout(refresh, isFetching ? PAUSE_MS : 0);
}

async function refresh() {
  timer = null;
  if (isFetching || !isStale || document.hidden) return; // when it is shown again, the stream begins with the state
  isFetching = true;
  isStale = false;
  const isShown = await show();
  await new Promise((resolve) => setTimeout(resolve, isShown ? PAUSE_MS : RETRY_MS));
  isFetching = false;
  if (isStale) refreshSoon();
}

// Whether what is shown is how it is now. After a fetch that failed another one follows: there may be no further event.
async function show() {
  try {
    const answer = await fetch(live.dataset.fragment, { headers: { Accept: "text/html" } });
    if (answer.status === 404 || answer.status === 401) location.reload(); // the page itself says why
    else if (answer.ok) replace(await answer.text());
    else throw new Error(`status ${answer.status}`);
    if (source?.readyState === EventSource.OPEN) connected();
    return true;
  } catch {
    disconnected();
    isStale = true;
    return false;
  }
}

// What the reader opened, focused and scrolled to stays so.
function replace(html) {
  const open = [...live.querySelectorAll("details[open][id]")].map((one) => one.id);
  const focus = live.contains(document.activeElement) ? focusable(document.activeElement)?.id : null;
  const scrolled = document.getElementById("trial-table")?.scrollLeft ?? 0;
  live.innerHTML = html;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  const table = document.getElementById("trial-table");
  if (table) table.scrollLeft = scrolled;
}

function focusable(element) {
  return element.id ? element : element.closest("details[id]")?.querySelector("summary[id]");
}

document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow()));
addEventListener("pagehide", unfollow);
follow();
