// The answers to one question: asked again when the revision or the filters change, never while nothing is looked at.

import { live } from "../live.js";

const FIRST_RETRY_MS = 1000;
// An answer without a tag changes by itself, as while something is computed.
const PASSING_MS = 3000;
const WAIT_SHOWN_MS = 200;
const WAIT_TOLD_MS = 2000;
const LONGEST_RETRY_MS = 30_000;
// A busy server is asked less often: an answer that took long is not asked for again at once.
const REST = 5;

export class Feed {
  #element;
  #address;
  #handlers;
  #known = { address: "", tag: "" };
  #isInView = false;
  #isStale = true;
  #asking = null;
  #timer = null;
  #notBefore = 0;
  #retryMs = FIRST_RETRY_MS;

  // `address()`: what to ask now. `handlers`: answer(json), wait(level 0 to 2), fail(sentence).
  constructor(element, address, handlers) {
    this.#element = element;
    this.#address = address;
    this.#handlers = handlers;
    new IntersectionObserver((found) => this.#seen(found), { rootMargin: "200px" }).observe(element);
    live.onRevision(() => this.#changed());
    document.addEventListener("visibilitychange", () => this.#schedule());
  }

  // Asks if what is asked has changed, at once: the reader waits for it.
  refresh() {
    if (this.#address() === (this.#asking?.address ?? this.#known.address)) return;
    this.#asking?.controller.abort();
    this.#asking = null;
    this.#isStale = true;
    this.#notBefore = 0;
    this.#schedule();
  }

  #changed() {
    this.#isStale = true;
    this.#schedule();
  }

  #seen(found) {
    this.#isInView = found.at(-1).isIntersecting;
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#isStale || this.#asking || document.hidden || !this.#isInView || !this.#element.isConnected) return;
    this.#timer = setTimeout(() => this.#ask(), Math.max(0, this.#notBefore - performance.now()));
  }

  async #ask() {
    const asking = { address: this.#address(), controller: new AbortController(), isPassing: false };
    const began = performance.now();
    this.#asking = asking;
    this.#isStale = false;
    const waits = this.#announce();
    try {
      await this.#receive(asking);
      this.#retryMs = FIRST_RETRY_MS;
      this.#rest(Math.max(asking.isPassing ? PASSING_MS : live.chartPause, REST * (performance.now() - began)));
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
    const response = await fetch(asking.address, { headers, signal: asking.controller.signal });
    if (response.status === 304 || this.#asking !== asking) return;
    if (!response.ok) throw new Error(await reasonIn(response));
    const answer = await response.json();
    if (this.#asking !== asking) return;
    this.#known = { address: asking.address, tag: response.headers.get("ETag") ?? "" };
    asking.isPassing = this.#known.tag === "";
    if (asking.isPassing) this.#isStale = true;
    await this.#handlers.answer(answer);
  }

  #failed(error) {
    this.#handlers.fail(error.message);
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

// The sentence of an error's answer.
async function reasonIn(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error ?? `status ${response.status}`;
  } catch {
    return `status ${response.status}`;
  }
}
