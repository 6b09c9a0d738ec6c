// Life cycle of a chart: it asks, draws the answer, and draws again when filters, theme or revision change.

import { onTheme } from "./colours.js";
import { Feed } from "./feed.js";
import { count, many } from "./formats.js";
import { Frame } from "./frame.js";
import { switches } from "./log_axes.js";
import { release } from "./plot.js";

// Settings that all charts of the page share, including every filter by parameter, metric or status.
const SHARED = new Set(["status", "q", "failure", "key", "direction", "top", "clip", "selected", "x"]);

// `chart`: {question; extra(state) → further parameters of the question; local: names in the state that change only the
// drawing; axes: {x and y: name in the state that makes the axis logarithmic}; empty(answer) → why nothing can be drawn,
// or ""; draw(answer, within) → argument of `Frame.show`}.
// `within`: {figure, frame, state, key: result key of the last answer}.
export function run(figure, state, chart, frame = new Frame(figure)) {
  const within = { figure, frame, state };
  let last = null;

  const address = () => `${figure.dataset.api}/${chart.question}?${asked(state, chart.extra?.(state))}`;
  const render = async () => {
    if (!last) return;
    const words = chart.empty?.(last, within) ?? "";
    frame.say(words);
    if (words) frame.show({ title: frame.title.textContent, count: counted(last), columns: [], rows: [] });
    else frame.show({ count: counted(last), ...(await chart.draw(last, within)) });
  };
  const feed = new Feed(figure, address, {
    answer: async (answer) => {
      last = answer;
      within.key = answer.key;
      await render();
      figure.dispatchEvent(new CustomEvent("chartanswer", { detail: answer, bubbles: true }));
    },
    wait: (level) => frame.wait(level, frame.title.textContent.toLowerCase()),
    fail: (sentence) => (last ? frame.warn : frame.say).call(frame, `This chart is not up to date: ${sentence}`),
  });
  const ends = [() => feed.end(), () => release(frame.body)];
  // A figure in the drawer is removed with its trial. Its listeners are removed at the next change.
  const isGone = () => {
    if (!figure.isConnected) for (const end of ends.splice(0)) end();
    return !figure.isConnected;
  };
  if (chart.axes) ends.push(switches(figure, frame, state, chart.axes));
  const names = [...(chart.local ?? []), ...Object.values(chart.axes ?? {})];
  const locals = () => JSON.stringify(names.map((name) => state.get(name)));
  let drawnWith = locals();
  const changed = () => {
    if (isGone()) return;
    feed.refresh();
    if (locals() !== drawnWith) render();
    drawnWith = locals();
  };
  ends.push(state.onChange(changed), onTheme(() => isGone() || render()));
  return { refresh: () => feed.refresh(), render };
}

// The query string: the page's filters, then the chart's own parameters.
export function asked(state, extra = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of entriesOf(state)) if (SHARED.has(name) || isRange(name)) query.append(name, value);
  for (const [name, value] of Object.entries(extra)) if (value !== null && value !== undefined) query.set(name, value);
  return query;
}

export function isRange(name) {
  return /^[pm]\../.test(name);
}

export function entriesOf(state) {
  const all = state.all();
  return [...(all[Symbol.iterator] ? all : Object.entries(all))];
}

// Why a chart is empty. `what`: such as "result"; `of`: number of trials; `begins`: a sentence about when the chart starts.
export function without(what, of, begins) {
  return of ? `No trial has ${/^[aeiou]/.test(what) ? "an" : "a"} ${what}.` : `No ${what} yet. ${begins}.`;
}

// "showing 5,000 of 83,412 trials · 3 without a numeric result · 4 outliers hidden"
function counted({ shown, of, notNumbers, clipped }) {
  const parts = [];
  if (shown !== undefined) parts.push(`showing ${count(shown)} of ${many(of ?? shown, "trial")}`);
  if (notNumbers) parts.push(`${count(notNumbers)} without a numeric result`);
  if (clipped) parts.push(`${many(clipped, "outlier")} hidden`);
  return parts.join(" · ");
}
