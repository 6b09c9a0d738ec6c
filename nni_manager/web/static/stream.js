// A stream of server-sent events. It is closed while the page is hidden. After a lost connection it reconnects, with a delay
// that grows up to half a minute.

const FIRST_MS = 1000;
const LONGEST_MS = 30000;
const KINDS = ["state", "log"];

export class Stream {
  #address;
  #calls;
  #asked = {};
  #source = null;
  #timer = null;
  #pause = FIRST_MS;

  /** `calls`: `{onOpen(), onLost({isRefused}), onEvent(kind, data)}`. */
  constructor(address, calls) {
    this.#address = address;
    this.#calls = calls;
  }

  get isOpen() {
    return this.#source?.readyState === EventSource.OPEN;
  }

  start() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", () => this.#open());
    addEventListener("offline", () => this.#lose(false));
    addEventListener("online", () => this.#openNow());
    this.#open();
  }

  /** Reopens the stream with changed values in its query string; null removes one. */
  ask(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null) delete this.#asked[name];
      else this.#asked[name] = value;
    }
    this.#openNow();
  }

  /** No event is expected soon: reconnects every half a minute, and when the page is shown again. */
  rest() {
    this.#close();
    this.#pause = LONGEST_MS;
    this.#openLater();
  }

  #openNow() {
    this.#pause = FIRST_MS;
    this.#close();
    this.#open();
  }

  #open() {
    if (document.hidden || this.#source) return;
    const query = new URLSearchParams(this.#asked).toString();
    this.#source = new EventSource(this.#address + (query && `?${query}`));
    this.#source.onopen = () => {
      this.#pause = FIRST_MS;
      this.#calls.onOpen();
    };
    this.#source.onerror = () => this.#lose(this.#source?.readyState === EventSource.CLOSED);
    for (const kind of KINDS) {
      this.#source.addEventListener(kind, (event) => this.#calls.onEvent(kind, JSON.parse(event.data)));
    }
  }

  #close() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#source?.close();
    this.#source = null;
  }

  #lose(isRefused) {
    this.#close();
    this.#calls.onLost({ isRefused });
    this.#openLater();
  }

  #openLater() {
    this.#timer = setTimeout(() => this.#open(), this.#pause * (0.75 + Math.random() / 2));
    this.#pause = Math.min(2 * this.#pause, LONGEST_MS);
  }
}
