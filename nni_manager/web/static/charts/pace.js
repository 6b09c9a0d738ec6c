// When charts may be drawn again: all of them together take a fortieth of the time at most, so that a page that shows
// many results a second leaves the processor to others. A slow browser draws more seldom.

const REST = 40;
// No chart waits longer than this because of others.
const LONGEST_MS = 10_000;
// What is drawn in less counts as this: its answer has cost the manager something, too.
const LEAST_MS = 40;
let freeAt = 0;

export const pace = {
  /** Milliseconds until the next drawing. */
  get wait() {
    return Math.max(0, freeAt - performance.now());
  },

  /** Notes a drawing that took so long. */
  spent(ms) {
    const now = performance.now();
    freeAt = Math.min(Math.max(now, freeAt) + REST * Math.max(ms, LEAST_MS), now + LONGEST_MS);
  },
};
