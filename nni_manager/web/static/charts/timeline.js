// When each trial ran: lanes by place, coloured and patterned by status; below, how many ran at a time.

import { run } from "./chart.js";
import { colours, faded } from "./colours.js";
import { duration, moment, plain, short } from "./formats.js";
import { axis, plot, utc } from "./plot.js";

const ROW = 14;
const LEAST = 300;
const MOST = 720;

export function mount(figure, { state }) {
  const view = { zoom: {}, refresh: () => {} };
  const chart = run(figure, state, {
    question: "timeline",
    extra: () => view.zoom,
    empty: ({ bars }) => (bars.length ? "" : "No trial has begun yet: the first bar begins with the first trial."),
    draw: (answer, within) => draw(answer, within, view),
  });
  Object.assign(view, chart);
}

async function draw(answer, within, view) {
  const { figure, frame } = within;
  const now = Date.now();
  const { rows, lanes } = stacked(answer, now);
  const height = Math.min(Math.max(rows.length ? lanes.at(-1).end * ROW + 170 : 0, LEAST), MOST);
  frame.body.style.height = `${height}px`;
  const exporter = await plot(within, [...bars(answer, rows, now), concurrency(answer)], {
    barmode: "overlay",
    bargap: 0.15,
    margin: { l: 90 },
    xaxis: axis("time (UTC)", { type: "date", anchor: "y2" }),
    yaxis: axis("", {
      domain: [0.3, 1],
      tickvals: lanes.map(({ at }) => at),
      ticktext: lanes.map(({ name }) => plain(short(name || "no place", 14))),
      range: [(lanes.at(-1)?.end ?? 1) - 0.4, -0.6],
      showgrid: false,
      zeroline: false,
    }),
    yaxis2: axis("running", { domain: [0, 0.2], rangemode: "tozero", nticks: 4 }),
    shapes: borders(lanes),
  });
  view.answer = answer;
  if (!figure.dataset.zooms) listen(figure, frame, view);
  return { ...table(answer), title: "When each trial ran, and how many at a time", exporter };
}

// A place has as many rows as trials ran there at a time; each bar takes the first free row.
function stacked({ lanes, bars }, now) {
  const free = new Map(lanes.map((name) => [name, []]));
  const taken = bars.map(({ lane, startMs, endMs }) => {
    const rows = free.get(lane) ?? free.set(lane, []).get(lane);
    let row = rows.findIndex((end) => end <= startMs);
    if (row < 0) row = rows.push(0) - 1;
    rows[row] = endMs ?? now;
    return row;
  });
  const first = new Map();
  let end = 0;
  const places = [...free].filter(([, rows]) => rows.length).map(([name, rows]) => {
    first.set(name, end);
    end += rows.length;
    return { name, at: end - rows.length / 2 - 0.5, end };
  });
  return { lanes: places, rows: bars.map(({ lane }, index) => first.get(lane) + taken[index]) };
}

function bars({ bars }, rows, now) {
  const theme = colours();
  const groups = new Map();
  bars.forEach((bar, index) => {
    if (!groups.has(bar.status)) groups.set(bar.status, []);
    groups.get(bar.status).push(index);
  });
  return [...groups].map(([status, indices]) => {
    const { colour, pattern, word } = theme.status(status);
    const of = (read) => indices.map((index) => read(bars[index], index));
    const lasted = ({ startMs, endMs }) => Math.max((endMs ?? now) - startMs, 1);
    return {
      type: "bar",
      orientation: "h",
      name: word,
      base: of(({ startMs }) => startMs),
      x: of(lasted),
      y: of((_, index) => rows[index]),
      customdata: of(({ number }) => number),
      text: of((bar) => `trial ${bar.number}, attempt ${bar.attempt}: ${word}, ${duration(lasted(bar))}`),
      textposition: "none",
      hovertemplate: "%{text}<extra></extra>",
      marker: {
        color: faded(colour, 0.75),
        line: { color: theme.panel, width: 0.5 },
        pattern: { shape: pattern, bgcolor: faded(colour, 0.75), fgcolor: theme.panel, size: 5, solidity: 0.35 },
      },
    };
  });
}

function concurrency({ concurrency }) {
  const { series } = colours();
  return {
    type: "scatter",
    mode: "lines",
    name: "running at a time",
    showlegend: false,
    x: concurrency.t,
    y: concurrency.running,
    yaxis: "y2",
    fill: "tozeroy",
    fillcolor: faded(series[0], 0.2),
    line: { shape: "hv", width: 1.5, color: series[0] },
    hovertemplate: "%{y} running<extra></extra>",
  };
}

function borders(lanes) {
  const line = { color: colours().line, width: 1 };
  const across = { type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", line };
  return lanes.slice(0, -1).map(({ end }) => ({ ...across, y0: end - 0.5, y1: end - 0.5 }));
}

function listen(figure, frame, view) {
  figure.dataset.zooms = "yes";
  frame.body.on("plotly_relayout", (change) => {
    const ends = [change["xaxis.range[0]"], change["xaxis.range[1]"]].map(utc);
    const isSampled = view.zoom.from !== undefined || view.answer.shown < view.answer.of;
    if (ends.every(Number.isFinite) && isSampled) view.zoom = { from: Math.floor(ends[0]), to: Math.ceil(ends[1]) };
    else if (change["xaxis.autorange"]) view.zoom = {};
    view.refresh();
  });
}

function table({ bars }) {
  const rows = bars.map((bar) => [
    bar.number,
    bar.id,
    bar.lane,
    bar.status,
    bar.attempt,
    moment(bar.startMs),
    moment(bar.endMs),
  ]);
  return { columns: ["trial", "id", "place", "status", "attempt", "start", "end"], rows };
}
