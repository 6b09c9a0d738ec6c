// The life of a chart: it asks, draws what is answered, and draws again when filters, theme or revision change.

import { onTheme } from "./colours.js";
import { Feed } from "./feed.js";
import { count, many } from "./formats.js";
import { Frame } from "./frame.js";
import { switches } from "./log_axes.js";
import { release } from "./plot.js";

// What all charts of the page share; every filter by parameter, metric or status is among it.
const SHARED = new Set(["status", "q", "failure", "key", "direction", "top", "clip", "selected", "x"]);

// `chart`: {question, extra(state) → what only this chart asks, local: names in the state that change only how it is
// drawn, axes: {x and y: name in the state of what makes that axis logarithmic}, empty(answer) → why there is nothing to draw or "", draw(answer, within) → what `Frame.show` takes}.
// `within`: {figure, frame, state, key: that of the results in the last answer}.
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
  // A drawer's figure goes with its trial; what has listened for it goes with the next change.
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

// The query string: the page's filters, then what the chart adds.
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

// Why a chart has nothing to draw. `what`: "result" or the like; `of`: how many trials there are; `begins`: with what the
// chart begins.
export function without(what, of, begins) {
  return of ? `No trial has ${/^[aeiou]/.test(what) ? "an" : "a"} ${what}.` : `No ${what} yet. ${begins}.`;
}

// "showing 5,000 of 83,412 trials · 3 results are no numbers · 4 outliers hidden"
function counted({ shown, of, notNumbers, clipped }) {
  const parts = [];
  if (shown !== undefined) parts.push(`showing ${count(shown)} of ${many(of ?? shown, "trial")}`);
  if (notNumbers) parts.push(`${count(notNumbers)} without a numeric result`);
  if (clipped) parts.push(`${many(clipped, "outlier")} hidden`);
  return parts.join(" · ");
}
