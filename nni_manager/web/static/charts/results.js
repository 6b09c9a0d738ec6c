// The result of each trial and the best so far: by number, elapsed time or clock time.

import { run, without } from "./chart.js";
import { colours, faded } from "./colours.js";
import { durationUnit, extent, finite, moment, number, plain } from "./formats.js";
import { hasNoPlace, isLog, leftOut } from "./log_axes.js";
import { selectedIn } from "./opening.js";
import { axis, choosableAxis, nameOf, plot, resultAxis, utc } from "./plot.js";
import { range } from "./ranges.js";

// Opacity of the spans of a density, by their number of trials.
const SHADES = [0.18, 0.35, 0.6];

export function mount(figure, { state }) {
  const view = { zoom: {}, refresh: () => {} };
  const chart = run(figure, state, {
    question: "results",
    axes: { x: "logx", y: "logy" },
    extra: () => view.zoom,
    empty: ({ of, points }) => (points.number.length ? "" : without("result", of, "The first trial has not reported one")),
    draw: (answer, within) => draw(answer, within, view),
  });
  Object.assign(view, chart);
}

async function draw(answer, within, view) {
  const { state } = within;
  const scale = horizontal(answer, state.get("x") ?? "number");
  const log = { x: isLog(state, "logx"), y: isLog(state, "logy") };
  const name = nameOf(within);
  const traces = [
    ...density(answer, scale, log.y),
    ...marks(answer, scale, name),
    best(answer, scale),
    ...chosen(answer, scale, state),
  ];
  const axes = { xaxis: across(scale, state), yaxis: resultAxis(name, state) };
  const exporter = await plot(within, traces, axes, () => listen(within, view));
  view.answer = answer;
  view.scale = log.x ? { ...scale, back: (value) => scale.back(10 ** value) } : scale;
  return { ...table(answer, name), ...words(answer, name, log), exporter };
}

function across({ title, type, whole }, state) {
  if (type === "date") return axis(title, { type, uirevision: title });
  return choosableAxis(title, state, "logx", { whole, uirevision: title });
}

// Conversion of x for the axis: a number, a duration in a suitable unit, or a clock time.
function horizontal({ points, best }, x) {
  const same = (value) => value;
  if (x === "clock") return { title: "end (UTC)", type: "date", of: same, back: utc };
  if (x !== "elapsed") return { title: "trial number", whole: true, of: same, back: Number };
  const [unit, size] = durationUnit(Math.max(extent(points.x)?.[1] ?? 0, extent(best.x)?.[1] ?? 0));
  const title = `time since the start (${unit})`;
  return { title, of: (value) => value / size, back: (value) => Number(value) * size };
}

// One trace per status, each with its colour and symbol.
function marks({ points }, scale, name) {
  const theme = colours();
  const groups = new Map();
  points.number.forEach((_, index) => {
    if (!finite(points.value[index])) return;
    const status = points.provisional[index] ? "RUNNING" : points.status[index];
    if (!groups.has(status)) groups.set(status, []);
    groups.get(status).push(index);
  });
  const size = points.number.length > 1500 ? 4 : 7;
  return [...groups].map(([status, indices]) => {
    const { colour, symbol, word } = theme.status(status);
    return {
      ...picked(points, indices, scale),
      type: "scatter",
      mode: "markers",
      name: status === "RUNNING" ? "running: latest value, provisional" : word,
      marker: { color: colour, symbol, size, opacity: points.number.length > 400 ? 0.65 : 0.9 },
      hovertemplate: `trial %{customdata}<br>${plain(name).replaceAll("%", "")} %{y:.6g}<extra></extra>`,
    };
  });
}

// The steps of the best so far, extended to the last trial.
function best({ best, points, density }, scale) {
  const x = best.x.map(scale.of);
  const y = [...best.value];
  const number = [...best.number];
  const last = extent([...points.x, ...(density?.x ?? [])])?.[1];
  if (x.length && last > best.x.at(-1)) {
    x.push(scale.of(last));
    y.push(y.at(-1));
    number.push(number.at(-1));
  }
  return {
    x,
    y,
    customdata: number,
    type: "scatter",
    mode: "lines+markers",
    name: "best so far",
    line: { shape: "hv", color: colours().series[0], width: 2 },
    marker: { symbol: x.map((_, index) => (index < best.x.length ? "star" : "line-ew")), size: 9 },
    hovertemplate: "best so far %{y:.6g}<br>trial %{customdata}<extra></extra>",
  };
}

function chosen({ points }, scale, state) {
  const wanted = new Set(selectedIn(state));
  const isWanted = (index) => wanted.has(points.number[index]) && finite(points.value[index]);
  const indices = [...points.number.keys()].filter(isWanted);
  if (!indices.length) return [];
  const marker = { symbol: "circle-open", size: 15, color: colours().accent, line: { width: 2.5 } };
  const look = { type: "scatter", mode: "markers", name: "selected", marker, hoverinfo: "skip" };
  return [{ ...picked(points, indices, scale), ...look }];
}

// Lowest to highest result of each bucket; darker: more trials.
function density({ density }, scale, isLogY) {
  if (!density) return [];
  const most = extent(density.count)?.[1] ?? 1;
  const theme = colours();
  return SHADES.map((shade, at) => {
    const x = [];
    const y = [];
    density.x.forEach((where, index) => {
      const level = Math.min(Math.floor((density.count[index] / most) * SHADES.length), SHADES.length - 1);
      if (level !== at || (isLogY && density.low[index] <= 0)) return;
      x.push(scale.of(where), scale.of(where), null);
      y.push(density.low[index], density.high[index], null);
    });
    const line = { color: faded(theme.muted, shade), width: 3 };
    const name = "all others, lowest to highest";
    return { x, y, type: "scatter", mode: "lines", line, hoverinfo: "skip", name, showlegend: at === 1 };
  });
}

function picked(points, indices, scale) {
  return {
    x: indices.map((index) => scale.of(points.x[index])),
    y: indices.map((index) => points.value[index]),
    customdata: indices.map((index) => points.number[index]),
  };
}

// If the data are sampled, a zoom requests finer data. A box selection filters by result.
function listen(within, view) {
  const { frame, state } = within;
  frame.body.on("plotly_relayout", (change) => {
    const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    const isSampled = view.zoom.from !== undefined || view.answer.density;
    const [first, last] = [view.scale.back(from), view.scale.back(to)];
    if (from !== undefined && isSampled) view.zoom = { from: Math.floor(first), to: Math.ceil(last) };
    else if (change["xaxis.autorange"]) view.zoom = {};
    view.refresh();
  });
  frame.body.on("plotly_selected", (selection) => {
    if (!selection?.range?.y) return;
    const [low, high] = extent(selection.range.y);
    state.set({ [`m.${within.key}`]: range(low, high), page: null }, { push: true });
  });
}

function words({ points, best }, name, log) {
  const last = best.value.length ? ` ${number(best.value.at(-1))}` : "";
  const title = `${name[0].toUpperCase()}${name.slice(1)} by trial, best so far${last}`;
  const isHidden = (value, at) => finite(value) && ((log.y && hasNoPlace(value)) || (log.x && hasNoPlace(points.x[at])));
  return { title: title + leftOut(points.value.filter(isHidden).length) };
}

function table({ points }, name) {
  const rows = points.number.map((trial, index) => [
    trial,
    points.id[index],
    points.status[index],
    points.value[index],
    points.provisional[index] ? "provisional" : "final",
    points.x[index] > 1e11 ? moment(points.x[index]) : points.x[index],
  ]);
  return { columns: ["trial", "id", "status", name, "kind", "x"], rows };
}
