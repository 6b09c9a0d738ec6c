// Distribution of results: a histogram, and the share of trials below each value.

import { run, without } from "./chart.js";
import { colours, faded } from "./colours.js";
import { extent, number, percent } from "./formats.js";
import { hasNoPlace, isLog, leftOut } from "./log_axes.js";
import { axis, choosableAxis, isNarrow, nameOf, plot, resultAxis } from "./plot.js";
import { range } from "./ranges.js";

const SHARES = [0, 0.25, 0.5, 0.75, 1];
const SHARE = { range: [0, 1], tickvals: SHARES, ticktext: SHARES.map(percent) };

export function mount(figure, { state }) {
  run(figure, state, {
    question: "distribution",
    axes: { x: "logy", y: "logn" },
    empty: ({ of, bins }) => (bins.length ? "" : without("result", of, "The distribution starts with the first result")),
    draw,
  });
}

async function draw(answer, within) {
  const { frame, state } = within;
  const name = nameOf(within);
  const log = isLog(state, "logy");
  frame.bins = log ? answer.logBins : answer.bins;
  const exporter = await plot(within, [histogram(frame.bins), ...share(answer)], {
    barmode: "overlay",
    bargap: 0,
    dragmode: isNarrow() ? false : "select",
    selectdirection: "h",
    margin: { r: 48 },
    shapes: log && hasNoPlace(answer.quantiles.p50) ? [] : median(answer),
    xaxis: resultAxis(name, state),
    yaxis: choosableAxis("trials", state, "logn", { rangemode: "tozero", whole: true }),
    yaxis2: axis("share of trials", { ...SHARE, overlaying: "y", side: "right", showgrid: false }),
  });
  if (!frame.body.dataset.filters) listen(within);
  const rows = frame.bins.map(({ low, high, count }) => [low, high, count]);
  return { title: title(answer, name) + leftOut(log ? answer.notPositive : 0), columns: ["from", "to", "trials"], rows, exporter };
}

function histogram(bins) {
  const theme = colours();
  return {
    type: "bar",
    name: "trials",
    x: bins.map(({ low, high }) => (low + high) / 2),
    width: bins.map(({ low, high }) => high - low || Math.abs(high) / 10 || 1),
    y: bins.map(({ count }) => count),
    customdata: bins.map(({ low, high }) => `${number(low)} to ${number(high)}`),
    marker: { color: faded(theme.series[0], 0.55), line: { color: theme.panel, width: 1 } },
    hovertemplate: "%{customdata}: %{y} trials<extra></extra>",
  };
}

function share({ edf }) {
  if (!edf?.x.length) return [];
  const line = { color: colours().series[1], width: 2, shape: "hv" };
  const hovertemplate = "%{text} are at most %{x:.6g}<extra></extra>";
  const place = { type: "scatter", mode: "lines", x: edf.x, y: edf.share, text: edf.share.map(percent), yaxis: "y2" };
  return [{ ...place, name: "share at or below", line, hovertemplate }];
}

function median({ quantiles }) {
  if (typeof quantiles?.p50 !== "number") return [];
  const line = { color: colours().muted, width: 1, dash: "dot" };
  return [{ type: "line", xref: "x", yref: "paper", x0: quantiles.p50, x1: quantiles.p50, y0: 0, y1: 1, line }];
}

function title({ quantiles }, name) {
  const middle = typeof quantiles?.p50 === "number" ? `, median ${number(quantiles.p50)}` : "";
  return `Distribution of ${name === "result" ? "results" : name}${middle}`;
}

// A selection filters by result; a click selects one bar.
function listen(within) {
  const { frame, state } = within;
  frame.body.dataset.filters = "yes";
  const filter = ([low, high]) =>
    state.set({ [`m.${within.key}`]: range(low, high), page: null }, { push: true });
  frame.body.on("plotly_selected", (selection) => selection?.range?.x && filter(extent(selection.range.x)));
  frame.body.on("plotly_click", ({ points: [{ data, pointNumber }] }) => {
    if (data.type !== "bar") return;
    const { low, high } = frame.bins[pointNumber];
    filter([low, high]);
  });
}
