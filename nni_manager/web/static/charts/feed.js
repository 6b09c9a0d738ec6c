// The answers to one question. It is asked again when revision or filters change, but not while the page is hidden.
// Requests of the reader and the end of the experiment take effect at once; other drawings are paced.

import { live } from "../live.js";
import { ask } from "./asking.js";
import { pace } from "./pace.js";

const FIRST_RETRY_MS = 1000;
// An answer without a tag can change without a new revision, for example while it is being computed.
const PASSING_MS = 3000;
const WAIT_SHOWN_MS = 200;
const WAIT_TOLD_MS = 2000;
const LONGEST_RETRY_MS = 30_000;
// A busy server gets fewer requests: after a slow answer the next request waits.
const REST = 5;
const LONGEST_REST_MS = 10_000;
// The first answer is fetched shortly before a chart comes into view.
const SOON = "200px";

export class Feed {
  #element;
  #address;
  #handlers;
  #known = { address: "", tag: "", content: null };
  #isInView = false;
  #isStale = true;
  // Nothing is drawn yet, or the reader waits.
  #isUrgent = true;
  #pauseMs;
  #asking = null;
  #timer = null;
  #notBefore = 0;
  #stopObserving = () => {};
  #leave;
  #retryMs = FIRST_RETRY_MS;

  // `address()`: address of the current question. `handlers`: answer(json), wait(level 0 to 2), fail(sentence). `pauseMs`:
  // minimum time between two questions, by default that of the page.
  constructor(element, address, handlers, { pauseMs = 0 } = {}) {
    this.#element = element;
    this.#address = address;
    this.#handlers = handlers;
    this.#pauseMs = pauseMs;
    this.#observe(SOON);
    const schedule = () => this.#schedule();
    const forget = live.onRevision((_, { isTurn }) => this.#changed(isTurn));
    document.addEventListener("visibilitychange", schedule);
    this.#leave = () => {
      forget();
      document.removeEventListener("visibilitychange", schedule);
    };
  }

  // For an element that was removed from the page.
  end() {
    this.#leave();
    this.#stopObserving();
    clearTimeout(this.#timer);
    this.#asking?.controller.abort();
  }

  // Asks at once if the question has changed: the reader waits for it.
  refresh() {
    if (this.#address() === (this.#asking?.address ?? this.#known.address)) return;
    this.#asking?.controller.abort();
    this.#asking = null;
    this.#isStale = true;
    this.#urge();
    this.#schedule();
  }

  #observe(rootMargin) {
    const observer = new IntersectionObserver((found) => this.#seen(found), { rootMargin });
    observer.observe(this.#element);
    this.#stopObserving = () => observer.disconnect();
  }

  // `isTurn`: the status of the experiment has changed, for example to its end.
  #changed(isTurn) {
    this.#isStale = true;
    if (isTurn) this.#urge();
    this.#schedule();
  }

  #urge() {
    this.#isUrgent = true;
    this.#notBefore = 0;
  }

  #seen(found) {
    this.#isInView = found.at(-1).isIntersecting;
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#isStale || this.#asking || document.hidden || !this.#isInView || !this.#element.isConnected) return;
    const rest = Math.max(0, this.#notBefore - performance.now());
    this.#timer = setTimeout(() => this.#ask(), this.#isUrgent ? rest : Math.max(rest, pace.wait));
  }

  async #ask() {
    if (!this.#isUrgent && pace.wait) return this.#schedule(); // another chart was drawn in the meantime
    const asking = { address: this.#address(), controller: new AbortController(), isPassing: false, tookMs: 0 };
    this.#asking = asking;
    this.#isStale = false;
    this.#isUrgent = false;
    const waits = this.#announce();
    try {
      await this.#receive(asking);
      this.#retryMs = FIRST_RETRY_MS;
      const least = asking.isPassing ? PASSING_MS : Math.max(this.#pauseMs, live.chartPause);
      this.#rest(Math.max(least, Math.min(REST * asking.tookMs, LONGEST_REST_MS)));
    } catch (error) {
      if (this.#asking === asking) this.#failed(error);
    } finally {
      waits.forEach(clearTimeout);
      if (this.#asking === asking) this.#finish();
    }
  }

  async #receive(asking) {
    const headers = { Accept: "application/json" };
    if (asking.address === this.#known.address && this.#known.tag) headers["If-None-Match"] = this.#known.tag;
    const began = performance.now();
    const response = await ask(asking.address, { headers, signal: asking.controller.signal });
    if (response.status === 304 || this.#asking !== asking) return;
    if (!response.ok) throw new Error(await reasonIn(response));
    const text = await response.text();
    asking.tookMs = performance.now() - began;
    if (this.#asking !== asking) return;
    const isFirst = this.#known.address === "";
    const isSame = asking.address === this.#known.address && contentOf(text) === this.#known.content;
    this.#known = { address: asking.address, tag: response.headers.get("ETag") ?? "", content: contentOf(text) };
    asking.isPassing = this.#known.tag === "";
    if (asking.isPassing) this.#isStale = true;
    if (!isSame) await this.#draw(JSON.parse(text), isFirst);
  }

  // The first drawing includes loading the library, so its time does not predict later ones.
  async #draw(answer, isFirst) {
    const began = performance.now();
    await this.#handlers.answer(answer);
    if (!isFirst) return pace.spent(performance.now() - began);
    this.#stopObserving();
    this.#observe("0px");
  }

  #failed(error) {
    this.#handlers.fail(error.message);
    this.#known = { address: "", tag: "", content: null }; // the next answer is always drawn
    this.#isStale = true;
    this.#rest(this.#retryMs);
    this.#retryMs = Math.min(2 * this.#retryMs, LONGEST_RETRY_MS);
  }

  #announce() {
    const after = (ms, level) => setTimeout(() => this.#handlers.wait(level), ms);
    return [after(WAIT_SHOWN_MS, 1), after(WAIT_TOLD_MS, 2)];
  }

  #rest(ms) {
    this.#notBefore = performance.now() + ms;
  }

  #finish() {
    this.#asking = null;
    this.#handlers.wait(0);
    this.#schedule();
  }
}

// An answer without the revision at its start: most changes of an experiment do not affect a chart.
function contentOf(text) {
  return text.replace(/^\{"revision":"[^"]*",?/, "");
}

// The message in an error response.
async function reasonIn(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error ?? `status ${response.status}`;
  } catch {
    return `status ${response.status}`;
  }
}
