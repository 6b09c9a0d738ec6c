// Two parameters: rank of the results in each cell of a grid, not interpolated. A click opens a cell's best trial.

import { live } from "../live.js";
import { run, without } from "./chart.js";
import { choosing } from "./choosing.js";
import { colours, rankScale } from "./colours.js";
import { columnsOf, forget } from "./columns.js";
import { extent, number, placed, plain, short } from "./formats.js";
import { Frame } from "./frame.js";
import { axis, isNarrow, plot } from "./plot.js";
import { choices, range } from "./ranges.js";
import { logarithmic } from "./sketch/axes.js";

const COLOURS = {
  title: { text: "rank of the median", side: "right", font: { size: 11 } },
  tickvals: [0, 1],
  ticktext: ["worst", "best"],
  thickness: 10,
  outlinewidth: 0,
};

// For a log axis.
const MOST_TICKS = 6;

// Requests nothing while fewer than two parameters have values.
export async function mount(figure, { state }) {
  const frame = new Frame(figure);
  const columns = await columnsOf(figure);
  const names = columns.parameters.filter(({ present }) => present).map(({ name }) => name);
  if (names.length > 1) return begin(figure, state, frame, names);
  frame.say(`This chart needs two parameters; ${lacking(columns)}.`);
  const end = live.onRevision(() => {
    end();
    forget(figure);
    mount(figure, { state });
  });
}

function lacking({ parameters, total }) {
  if (parameters.length === 1) return "this experiment has one";
  return total ? "no trial has two" : "no trial exists yet";
}

function begin(figure, state, frame, names) {
  const menus = {
    a: choosing(figure, "Across", {}, (value) => state.set({ a: value })),
    b: choosing(figure, "Up", {}, (value) => state.set({ b: value })),
  };
  menus.a.offer(names, state.get("a") ?? names[0]);
  menus.b.offer(names, state.get("b") ?? names[1]);
  const chart = {
    question: "pair",
    extra: () => ({ a: state.get("a"), b: state.get("b") }),
    empty: ({ of, cells }) => (cells.length ? "" : without("result", of, "Cells are coloured by the results of their trials")),
    draw: (answer, within) => draw(answer, within, menus),
  };
  run(figure, state, chart, frame);
}

async function draw({ a, b, cells }, within, menus) {
  const { figure, frame, state } = within;
  menus.a.offer([a.name, b.name], a.name);
  menus.b.offer([a.name, b.name], b.name);
  const theme = colours();
  const [across, up] = [sides(a), sides(b)];
  const table = grid(cells, across.size, up.size);
  const exporter = await plot(
    within,
    [
      {
        type: "heatmap",
        x: across.edges,
        y: up.edges,
        z: table.map((row) => row.map((cell) => cell?.score ?? null)),
        customdata: table.map((row) => row.map((cell) => cell?.number ?? null)),
        text: table.map((row) => row.map((cell) => (cell ? words(cell) : ""))),
        hovertemplate: "%{text}<extra></extra>",
        hoverongaps: false,
        colorscale: rankScale(theme),
        zmin: 0,
        zmax: 1,
        xgap: 1,
        ygap: 1,
        colorbar: COLOURS,
      },
    ],
    {
      showlegend: false,
      dragmode: isNarrow() ? false : "select",
      xaxis: axis(a.name, { ...across.axis, uirevision: a.name }),
      yaxis: axis(b.name, { ...up.axis, uirevision: b.name }),
    },
  );
  frame.axes = { a, b };
  if (!figure.dataset.filters) listen(figure, frame, state);
  return { ...rows(a, b, cells), title: `Results by ${a.name} and ${b.name}`, exporter };
}

// Ordered edges of the cells along one axis, and the layout of that axis.
function sides({ kind, log, edges, ...all }) {
  if (kind !== "choice") {
    const range = ends(edges, log);
    const look = log ? { type: "log", range, ...logTicks(...range) } : { type: "linear", exponentformat: "power", range };
    return { size: edges.length - 1, edges, axis: look };
  }
  const ticktext = placed(all).map((text) => plain(short(text, 12)));
  const places = [...ticktext.keys()];
  const around = [...places, places.length].map((at) => at - 0.5);
  return { size: places.length, edges: around, axis: { type: "linear", tickvals: places, ticktext } };
}

// Ticks as in charts without the library. The library would write powers, and single digits between them.
function logTicks(low, high) {
  const ticks = logarithmic(low, high, MOST_TICKS);
  return { tickvals: ticks.map(({ at }) => 10 ** at), ticktext: ticks.map(({ text }) => text) };
}

function ends(edges, log) {
  const both = [edges[0], edges.at(-1)];
  return log ? both.map(Math.log10) : both;
}

// Rows from bottom to top, cells from left to right; null: no trial.
function grid(cells, width, height) {
  const table = Array.from({ length: height }, () => Array(width).fill(null));
  for (const cell of cells) table[cell.j][cell.i] = { ...cell, score: cell.rank };
  return table;
}

function words({ count, median, best, number: trial }) {
  return `${count} trials<br>median ${number(median)}<br>best ${number(best)}, trial ${trial}`;
}

// A selection filters by both parameters.
function listen(figure, frame, state) {
  figure.dataset.filters = "yes";
  frame.body.on("plotly_selected", (selection) => {
    if (!selection?.range?.x) return;
    const { a, b } = frame.axes;
    const [across, up] = [framed(a, selection.range.x), framed(b, selection.range.y)];
    if (across && up) state.set({ [`p.${a.name}`]: across, [`p.${b.name}`]: up, page: null }, { push: true });
  });
}

function framed({ kind, choices: values }, ends) {
  const [low, high] = extent(ends);
  return kind === "choice" ? choices(values.filter((_, at) => at >= low && at <= high)) : range(low, high);
}

function rows(a, b, cells) {
  const found = cells.map((cell) => [
    side(a, cell.i),
    side(b, cell.j),
    cell.count,
    cell.median,
    cell.best,
    cell.number,
  ]);
  return { columns: [a.name, b.name, "trials", "median", "best", "trial"], rows: found };
}

function side({ kind, edges, ...all }, at) {
  return kind === "choice" ? placed(all)[at] : `${number(edges[at])} to ${number(edges[at + 1])}`;
}
