// What the page shows is in its address: the query string is the state of filter, sorting, columns and charts.

const callbacks = new Set();

function values() {
  return new URLSearchParams(location.search);
}

export const state = {
  /** The value of a name; null: not set. */
  get(name) {
    return values().get(name);
  },

  /** All of it, as URLSearchParams. */
  all() {
    return values();
  },

  /** Sets some names; null or "" removes one. `push`: the Back button leads to the state before. */
  set(changes, { push = false } = {}) {
    const next = values();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") next.delete(name);
      else next.set(name, String(value));
    }
    this.replaceAll(next, { push });
  },

  /** Sets the whole query string. `quiet`: the page shows it already, so it is not fetched again. */
  replaceAll(next, { push = false, quiet = false } = {}) {
    const text = next.toString();
    if (text === values().toString()) return;
    const address = `${location.pathname}${text && `?${text}`}${location.hash}`;
    history[push ? "pushState" : "replaceState"](null, "", address);
    tell(quiet);
  },

  /** Calls back after every change, also by the Back button. Returns a function that ends it. */
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
