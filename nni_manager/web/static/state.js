// The state of the page is in its address: filter, sorting, columns and chart settings are in the query string.

const callbacks = new Set();

function values() {
  return new URLSearchParams(location.search);
}

export const state = {
  /** The value of a name; null: not set. */
  get(name) {
    return values().get(name);
  },

  /** The whole state, as URLSearchParams. */
  all() {
    return values();
  },

  /** Sets some values; null or "" removes one. `push`: adds a history entry for the Back button. */
  set(changes, { push = false } = {}) {
    const next = values();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") next.delete(name);
      else next.set(name, String(value));
    }
    this.replaceAll(next, { push });
  },

  /** Sets the whole query string. `quiet`: the page already shows this state, so it is not fetched again. */
  replaceAll(next, { push = false, quiet = false } = {}) {
    const text = next.toString();
    if (text === values().toString()) return;
    const address = `${location.pathname}${text && `?${text}`}${location.hash}`;
    history[push ? "pushState" : "replaceState"](null, "", address);
    tell(quiet);
  },

  /** Calls back after every change, including the Back button. Returns a function that unsubscribes. */
  onChange(callback) {
    callbacks.add(callback);
    return () => callbacks.delete(callback);
  },
};

function tell(isShown) {
  for (const callback of callbacks) callback(state, { isShown });
  document.dispatchEvent(new Event("statechange"));
}

addEventListener("popstate", () => tell(false));
