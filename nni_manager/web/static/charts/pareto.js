// Several objectives: the trials by two of them. Non-dominated trials form the front; trials that violate a constraint
// have their own marks.

import { run } from "./chart.js";
import { choosing } from "./choosing.js";
import { colours, faded } from "./colours.js";
import { number, plain } from "./formats.js";
import { Frame } from "./frame.js";
import { hasNoPlace, isLog, leftOut } from "./log_axes.js";
import { selectedIn } from "./opening.js";
import { choosableAxis, plot } from "./plot.js";

export function mount(figure, { state }) {
  const frame = new Frame(figure);
  const menus = {
    x: choosing(figure, "Across", {}, (value) => state.set({ ox: value })),
    y: choosing(figure, "Up", {}, (value) => state.set({ oy: value })),
  };
  const chart = {
    question: "pareto",
    extra: () => ({ a: state.get("ox"), b: state.get("oy") }),
    empty: ({ points }) => (points.number.length ? "" : "No trial has a numeric result for every objective."),
    axes: { x: "logox", y: "logoy" },
    draw: (answer, within) => draw(answer, within, menus),
  };
  run(figure, state, chart, frame);
}

async function draw(answer, within, menus) {
  const { points, objectives, x, y } = answer;
  const names = objectives.map(({ name }) => name);
  menus.x.offer(names, x);
  menus.y.offer(names, y);
  const theme = colours();
  const chosen = new Set(selectedIn(within.state));
  const pick = (test) => [...points.number.keys()].filter(test);
  const front = pick((index) => points.front[index]).sort((one, other) => points.x[one] - points.x[other]);
  const traces = [
    marks(answer, pick((index) => !points.front[index] && !points.feasible[index]), "violates a constraint", {
      symbol: "x",
      color: faded(theme.muted, 0.7),
      size: 7,
    }),
    marks(answer, pick((index) => !points.front[index] && points.feasible[index]), "dominated", {
      symbol: "circle",
      color: faded(theme.series[0], 0.55),
      size: 7,
    }),
    {
      ...marks(answer, front, frontName(answer, front), { symbol: "diamond", color: theme.series[3], size: 11 }),
      ...(objectives.length === 2 ? { mode: "lines+markers", line: { shape: "hv", width: 1.5, color: theme.series[3] } } : {}),
    },
    marks(answer, pick((index) => chosen.has(points.number[index])), "selected", {
      symbol: "circle-open",
      color: theme.accent,
      size: 16,
      line: { width: 2.5 },
    }),
  ].filter((trace) => trace.x.length);
  const exporter = await plot(within, traces, {
    xaxis: choosableAxis(titled(objectives, x), within.state, "logox", { uirevision: x }),
    yaxis: choosableAxis(titled(objectives, y), within.state, "logoy", { uirevision: y }),
  });
  const log = { x: isLog(within.state, "logox"), y: isLog(within.state, "logoy") };
  const hidden = pick((at) => (log.x && hasNoPlace(points.x[at])) || (log.y && hasNoPlace(points.y[at])));
  const title = `Pareto front: ${answer.frontSize} non-dominated trials${leftOut(hidden.length)}`;
  return { title, ...table(answer), exporter };
}

function marks({ points, x, y }, indices, name, marker) {
  return {
    x: indices.map((index) => points.x[index]),
    y: indices.map((index) => points.y[index]),
    customdata: indices.map((index) => points.number[index]),
    type: "scatter",
    mode: "markers",
    name,
    marker,
    hovertemplate: `trial %{customdata}<br>${safe(x)} %{x:.6g}<br>${safe(y)} %{y:.6g}<extra>${safe(name)}</extra>`,
  };
}

function safe(text) {
  return plain(text).replaceAll("%", "");
}

// While no trial satisfies the constraints, the set contains the trials with the smallest violations.
function frontName({ points }, front) {
  return front.some((index) => !points.feasible[index]) ? "smallest violations so far" : "Pareto front";
}

function titled(objectives, name) {
  const { direction } = objectives.find((one) => one.name === name);
  return `${name} (${direction === "maximize" ? "greater" : "smaller"} is better)`;
}

function table({ points, x, y }) {
  const kind = (index) => (points.front[index] ? "front" : points.feasible[index] ? "dominated" : "infeasible");
  const rows = points.number.map((trial, index) => [
    trial,
    points.id[index],
    number(points.x[index]),
    number(points.y[index]),
    kind(index),
  ]);
  return { columns: ["trial", "id", x, y, "kind"], rows };
}
