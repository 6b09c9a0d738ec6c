// Learning curves: the best k, selected and running trials as lines, all others as a band.

import { run, without } from "./chart.js";
import { colours, faded, scored } from "./colours.js";
import { count, durationUnit, extent, finite } from "./formats.js";
import { hasNoPlace, isLog, leftOut } from "./log_axes.js";
import { selectedIn } from "./opening.js";
import { axis, choosableAxis, nameOf, plot, resultAxis } from "./plot.js";

export function mount(figure, { state }) {
  run(figure, state, {
    question: "curves",
    extra: () => ({ selected: chosenIn(figure, state).join(",") || null }),
    axes: { x: "logstep", y: "logy" },
    empty: ({ of, curves, band }) =>
      curves.length || band?.x.length ? "" : without("intermediate result", of, "A curve starts with the first one of its trial"),
    draw,
  });
}

// The trials that the page's address selects, and the trial of the figure.
function chosenIn({ dataset }, state) {
  const own = dataset.selected === undefined ? [] : [Number(dataset.selected)];
  return [...new Set([...selectedIn(state), ...own])];
}

async function draw(answer, within) {
  const { state, figure } = within;
  const chosen = chosenIn(figure, state);
  const sorted = [...answer.curves].sort(onTop);
  const scale = horizontal(answer, state.get("x"));
  const traces = [...band(answer.band), ...sorted.map((curve) => line(curve, sorted.length, chosen, scale))];
  const exporter = await plot(within, named(traces), {
    xaxis: across(scale, state),
    yaxis: resultAxis(nameOf(within, "intermediate result"), state),
  });
  const log = { x: isLog(state, "logstep"), y: isLog(state, "logy") };
  return { ...table(answer), title: title(answer) + leftOut(hidden(answer, log)), count: counted(answer), exporter };
}

function across({ title: text, type, whole }, state) {
  if (type === "date") return axis(text, { type, uirevision: text });
  return choosableAxis(text, state, "logstep", { whole, uirevision: text });
}

const ORDER = { running: 0, top: 1, selected: 2 };

// The best and the selected trials are drawn last.
function onTop(one, other) {
  return ORDER[one.why] - ORDER[other.why] || (other.rank ?? 0) - (one.rank ?? 0);
}

// Steps, times since each trial's start in a suitable unit, or clock times.
function horizontal({ curves }, x) {
  if (x === "clock") return { title: "time (UTC)", type: "date", of: (value) => value };
  if (x !== "elapsed") return { title: "step", whole: true, of: (value) => value };
  const [unit, size] = durationUnit(extent(curves.map((curve) => curve.x.at(-1) ?? 0))?.[1] ?? 0);
  return { title: `time since the trial's start (${unit})`, of: (value) => value / size };
}

// The 10 % to 90 % band of the others, and their median.
function band(found) {
  if (!found?.x.length) return [];
  const theme = colours();
  const fillcolor = faded(theme.muted, 0.22);
  const base = { x: found.x, type: "scatter", mode: "lines", hoverinfo: "skip", legendgroup: "band" };
  return [
    { ...base, y: found.p10, line: { width: 0 }, showlegend: false },
    { ...base, y: found.p90, line: { width: 0 }, fill: "tonexty", fillcolor, name: "others, 10 to 90 %" },
    { ...base, y: found.p50, line: { width: 1.5, dash: "dash", color: theme.muted }, name: "others, median" },
  ];
}

// Dotted for running trials, thick for selected ones; better curves have more contrast.
function line({ number, status, why, rank, x, y }, of, chosen, scale) {
  const theme = colours();
  const isSelected = why === "selected" || chosen.includes(number);
  const usual = why === "running" ? theme.status("RUNNING").colour : ranked(rank, of, theme);
  const selected = selectedLook(number, chosen, theme);
  const colour = isSelected ? selected.colour : usual;
  const place = `trial ${number}, ${theme.status(status).word}${rank ? `, rank ${rank}` : ""}`;
  return {
    x: x.map(scale.of),
    y,
    customdata: x.map(() => number),
    type: "scatter",
    mode: x.length > 1 ? "lines" : "markers",
    line: { color: colour, width: isSelected ? 4 : rank === 1 ? 3 : 1.5, dash: why === "running" ? "dot" : "solid" },
    marker: { color: colour, size: 6 },
    name: isSelected ? selected.name : rank === 1 ? "best" : why === "running" ? "running" : "top",
    hovertemplate: `${place}<br>%{x}: %{y:.6g}<extra></extra>`,
  };
}

// Several selected trials differ in colour and name.
function selectedLook(number, chosen, theme) {
  if (chosen.length < 2) return { colour: theme.accent, name: "selected" };
  return { colour: theme.series[Math.max(chosen.indexOf(number), 0) % theme.series.length], name: `trial ${number}` };
}

function ranked(rank, of, theme) {
  return scored(1 - Math.min((rank ?? of) - 1, of) / Math.max(of, 2), theme);
}

// One legend entry per kind.
function named(traces) {
  const seen = new Set();
  return traces.map((trace) => {
    const isFirst = !seen.has(trace.name);
    seen.add(trace.name);
    return { legendgroup: trace.name, ...trace, showlegend: trace.showlegend ?? isFirst };
  });
}

function kinds(answer) {
  const found = { top: 0, running: 0, selected: 0 };
  for (const { why } of answer.curves) found[why] += 1;
  return found;
}

function title(answer) {
  const { top, running, selected } = kinds(answer);
  const parts = [[top, `best ${top}`], [running, `${running} running`], [selected, `${selected} selected`]];
  const shown = parts.filter(([some]) => some).map(([, text]) => text);
  return `Learning curves${shown.length ? `: ${shown.join(", ")}` : ""}`;
}

// Number of values of the drawn curves that log axes cannot show.
function hidden({ curves }, log) {
  const of = ({ x, y }) =>
    y.filter((value, at) => finite(value) && ((log.y && hasNoPlace(value)) || (log.x && hasNoPlace(x[at])))).length;
  return curves.reduce((sum, curve) => sum + of(curve), 0);
}

function counted({ shown, of, band: found, curves }) {
  const others = extent(found?.count ?? [])?.[1] ?? 0;
  const band = others ? `; the band shows ${count(others)} others` : "";
  return `showing ${count(shown ?? curves.length)} of ${count(of ?? curves.length)} trials${band}`;
}

function table({ curves }) {
  const rows = curves.flatMap(({ number: trial, id, status, why, x, y }) =>
    x.map((step, index) => [trial, id, status, why, step, y[index]]),
  );
  return { columns: ["trial", "id", "status", "why", "step", "value"], rows };
}
