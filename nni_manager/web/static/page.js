// Keeps an experiment's page fresh: when the stream of events says that something changed, the part of the page that
// changes is fetched again. Without this script the page is as it was when it was loaded; everything else works.

const live = document.getElementById("live");
const PAUSE_MS = 1000;

let source = null;
let timer = null;
let isStale = false;
let isFetching = false;

function follow() {
  if (!live.dataset.events || document.hidden || source) return;
  source = new EventSource(live.dataset.events);
  source.addEventListener("state", (event) => {
    if (JSON.parse(event.data).status === "STOPPED") unfollow(); // there will be no other; do not ask again
    isStale = true;
    refreshSoon();
  });
}

function unfollow() {
  source?.close();
  source = null;
}

function refreshSoon() {
  timer ??= setTimeout(refresh, isFetching ? PAUSE_MS : 0);
}

async function refresh() {
  timer = null;
  if (isFetching || !isStale) return;
  isFetching = true;
  isStale = false;
  try {
    const answer = await fetch(live.dataset.fragment, { headers: { Accept: "text/html" } });
    if (answer.ok) replace(await answer.text());
  } catch {
    // the daemon is away; the stream connects again by itself, and then there is an event
  }
  await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  isFetching = false;
  if (isStale) refreshSoon();
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
