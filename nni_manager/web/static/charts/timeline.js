// When each trial ran: a lane for each place, with colour and pattern by status; below, the number of running trials.

import { run } from "./chart.js";
import { colours, faded } from "./colours.js";
import { duration, extent, moment, plain, short } from "./formats.js";
import { axis, plot, utc } from "./plot.js";

// In pixels: height of a lane, margins around the lanes, total height.
const [ROW, AROUND, LEAST, MOST] = [16, 170, 320, 720];

export function mount(figure, { state }) {
  const view = { zoom: {}, refresh: () => {} };
  const chart = run(figure, state, {
    question: "timeline",
    extra: () => view.zoom,
    empty: ({ bars }) => (bars.length ? "" : "No trial has started yet."),
    draw: (answer, within) => draw(answer, within, view),
  });
  Object.assign(view, chart);
}

async function draw(answer, within, view) {
  const { figure, frame } = within;
  const { lanes } = answer;
  const [row, named] = lanes.length * ROW > MOST - AROUND ? [(MOST - AROUND) / lanes.length, 4] : [ROW, 1];
  frame.body.style.height = `${Math.max(Math.round(lanes.length * row) + AROUND, LEAST)}px`;
  const every = lanes.map((_, at) => at).filter((at) => at % named === 0);
  const exporter = await plot(within, [...bars(answer), concurrency(answer)], {
    barmode: "overlay",
    bargap: 0.15,
    margin: { l: 90 },
    xaxis: axis("time (UTC)", { type: "date", anchor: "y2", ...newest(answer) }),
    yaxis: axis("", {
      domain: [0.3, 1],
      tickvals: every,
      ticktext: every.map((at) => plain(short(lanes[at] || "no place", 16))),
      range: [lanes.length - 0.4, -0.6],
      showgrid: false,
      zeroline: false,
    }),
    yaxis2: axis("running", { domain: [0, 0.2], rangemode: "tozero", nticks: 4, whole: true }),
  });
  view.answer = answer;
  if (!figure.dataset.zooms) listen(figure, frame, view);
  return { ...table(answer), title: "When each trial ran, and how many at the same time", exporter };
}

// If bars are sampled, the newest fill the chart; zooming out shows earlier numbers of running trials.
function newest({ bars, shown, of }) {
  return shown < of ? { range: [bars[0].startMs, extent(bars.map(({ endMs }) => endMs))[1]] } : {};
}

function bars({ bars }) {
  const theme = colours();
  const groups = new Map();
  bars.forEach((bar, index) => {
    if (!groups.has(bar.status)) groups.set(bar.status, []);
    groups.get(bar.status).push(index);
  });
  return [...groups].map(([status, indices]) => {
    const { colour, pattern, word } = theme.status(status);
    const of = (read) => indices.map((index) => read(bars[index]));
    const lasted = ({ startMs, endMs }) => Math.max(endMs - startMs, 1);
    return {
      type: "bar",
      orientation: "h",
      name: word,
      base: of(({ startMs }) => startMs),
      x: of(lasted),
      y: of(({ lane }) => lane),
      customdata: of(({ number }) => number),
      text: of((bar) => `trial ${bar.number}, attempt ${bar.attempt}: ${word}, ${duration(lasted(bar))}`),
      textposition: "none",
      hovertemplate: "%{text}<extra></extra>",
      marker: {
        color: faded(colour, 0.75),
        line: { color: theme.panel, width: bars.length > 100 ? 0 : 0.5 },
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
    name: "running trials",
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

function table({ bars, lanes }) {
  const rows = bars.map((bar) => [
    bar.number,
    bar.id,
    lanes[bar.lane],
    bar.status,
    bar.attempt,
    moment(bar.startMs),
    moment(bar.endMs),
  ]);
  return { columns: ["trial", "id", "place", "status", "attempt", "start", "end"], rows };
}
