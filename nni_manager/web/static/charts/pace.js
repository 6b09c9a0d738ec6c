// Limits how often charts are drawn: together they use at most a fortieth of the time, so a page with many results per
// second does not occupy a processor. A slow browser draws less often.

const REST = 40;
// Maximum time that a chart waits for others.
const LONGEST_MS = 10_000;
// Minimum cost of a drawing, because its answer also costs the manager time.
const LEAST_MS = 40;
let freeAt = 0;

export const pace = {
  /** Milliseconds until the next drawing. */
  get wait() {
    return Math.max(0, freeAt - performance.now());
  },

  /** Records the duration of a drawing. */
  spent(ms) {
    const now = performance.now();
    freeAt = Math.min(Math.max(now, freeAt) + REST * Math.max(ms, LEAST_MS), now + LONGEST_MS);
  },
};
