// Replaces the page's address: settings of the charts, kept while the report is open. Filters are fixed at the creation of
// the report.

const CHOICES = new Set(["effect", "a", "b", "logy", "logx", "logstep", "logn", "logox", "logoy", "ox", "oy"]);
const callbacks = new Set();
const values = new URLSearchParams();

export const state = {
  get(name) {
    return values.get(name);
  },

  all() {
    return values;
  },

  set(changes) {
    const before = values.toString();
    for (const [name, value] of Object.entries(changes)) {
      if (!CHOICES.has(name)) continue;
      if (value === null || value === undefined || value === "") values.delete(name);
      else values.set(name, String(value));
    }
    if (values.toString() !== before) for (const callback of callbacks) callback(state, {});
  },

  onChange(callback) {
    callbacks.add(callback);
    return () => callbacks.delete(callback);
  },
};
