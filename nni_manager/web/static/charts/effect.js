// What each parameter does to the result: binned, the most important first. A region that is framed is a filter.

import { run } from "./chart.js";
import { choosing } from "./choosing.js";
import { colours, faded } from "./colours.js";
import { columnsOf } from "./columns.js";
import { choice, extent, finite, short } from "./formats.js";
import { axis, plot } from "./plot.js";
import { choices, range } from "./ranges.js";

// Of a panel, in pixels.
const NARROWEST = 260;

export function mount(figure, { state }) {
  const menu = choosing(figure, "Effect of", { "": "the most important" }, (value) => state.set({ effect: value || null }));
  columnsOf(figure).then(({ parameters }) => menu.offer(parameters.map(({ name }) => name), state.get("effect") ?? ""));
  run(figure, state, {
    question: "effect",
    local: ["logy"],
    extra: () => ({ parameter: state.get("effect") }),
    empty: ({ parameters }) => (parameters.some(({ bins }) => bins.length) ? "" : "No result yet: the effect of a parameter is told by results."),
    draw: (answer, within) => draw(answer, within, menu),
  });
}

async function draw(answer, within, menu) {
  const { figure, frame, state } = within;
  menu.offer(answer.parameters.map(({ name }) => name), state.get("effect") ?? "");
  const parameters = answer.parameters.filter(({ bins }) => bins.length);
  const isLog = state.get("logy") === "1";
  const rows = Math.ceil(parameters.length / Math.max(1, Math.floor(frame.body.clientWidth / NARROWEST)));
  const columns = Math.ceil(parameters.length / rows);
  frame.body.style.height = `${Math.max(rows, 1) * (parameters.length > 1 ? 190 : 300) + 40}px`;
  const layout = { grid: { rows, columns, pattern: "independent", xgap: 0.16, ygap: 0.42 }, dragmode: isNarrow() ? false : "select", selectdirection: "h" };
  const key = state.get("key") ?? "default";
  parameters.forEach((parameter, index) => Object.assign(layout, axes(parameter, index, { columns, isLog, key })));
  const exporter = await plot(within, parameters.flatMap(panel), layout);
  within.frame.effects = parameters;
  if (!figure.dataset.filters) listen(figure, frame, state);
  return { ...table(parameters), title: title(parameters), exporter };
}

function isNarrow() {
  return matchMedia("(max-width: 40rem)").matches;
}

// The name of the nth axis: x, x2, x3 …
function nth(name, index) {
  return index ? `${name}${index + 1}` : name;
}

function axes({ name, kind, log, bins, importance }, index, { columns, isLog, key }) {
  const share = finite(importance) ? ` (${(100 * importance).toPrecision(2)} %)` : "";
  const ticks = kind === "choice" ? { type: "linear", tickvals: bins.map((_, at) => at), ticktext: bins.map((bin) => short(choice(bin.choice), 10)) } : {};
  const x = axis(`${short(name)}${share}`, { type: log ? "log" : "linear", exponentformat: "power", nticks: 5, ...ticks });
  const y = axis(index % columns ? "" : key === "default" ? "result" : key, { type: isLog ? "log" : "linear", nticks: 5, exponentformat: "power" });
  return { [nth("xaxis", index)]: x, [nth("yaxis", index)]: y };
}

// Band of 10 to 90 %, median and best of each bin, and the best trials as points.
function panel(parameter, index) {
  const { kind, log, bins, points } = parameter;
  const theme = colours();
  const place = { type: "scatter", xaxis: nth("x", index), yaxis: nth("y", index), showlegend: index === 0 };
  const x = bins.map((bin, at) => (kind === "choice" ? at : middle(bin, log)));
  const of = (name) => bins.map((bin) => bin[name]);
  const isChoice = kind === "choice";
  const edge = { ...place, x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  const spread = isChoice
    ? [{ ...place, x, y: of("median"), mode: "markers", name: "10 to 90 %", marker: { opacity: 0 }, hoverinfo: "skip", error_y: bars(bins, theme) }]
    : [{ ...edge, y: of("p10") }, { ...edge, y: of("p90"), fill: "tonexty", fillcolor: faded(theme.series[0], 0.2), name: "10 to 90 %", showlegend: index === 0 }];
  const counts = { text: bins.map(({ count }) => `${count} trials`), hovertemplate: "median %{y:.6g} of %{text}<extra></extra>" };
  const median = { ...place, ...counts, x, y: of("median"), mode: isChoice ? "markers" : "lines+markers", name: "median", line: { color: theme.series[0], width: 2 }, marker: { symbol: "square", size: 5, color: theme.series[0] } };
  const best = { ...place, x, y: of("best"), mode: "markers", name: "best of the bin", marker: { symbol: "star", size: 7, color: theme.series[1] }, hovertemplate: "best %{y:.6g}<extra></extra>" };
  return [...spread, median, best, ...(points?.number.length ? [trials(parameter, place, theme)] : [])];
}

function trials({ kind, bins, points }, place, theme) {
  const at = new Map(bins.map((bin, index) => [JSON.stringify(bin.choice), index]));
  const x = kind === "choice" ? points.x.map((value) => at.get(JSON.stringify(value)) ?? value) : points.x;
  const marker = { symbol: "circle-open", size: 6, color: theme.fg };
  return { ...place, x, y: points.value, customdata: points.number, mode: "markers", name: "best trials", marker, hovertemplate: "trial %{customdata}<br>%{y:.6g}<extra></extra>" };
}

function bars(bins, theme) {
  return {
    type: "data",
    symmetric: false,
    array: bins.map(({ p90, median }) => p90 - median),
    arrayminus: bins.map(({ p10, median }) => median - p10),
    color: faded(theme.series[0], 0.4),
    thickness: 8,
    width: 0,
  };
}

function middle({ low, high }, log) {
  return log && low > 0 ? Math.sqrt(low * high) : (low + high) / 2;
}

// What is framed in a panel is a filter by its parameter.
function listen(figure, frame, state) {
  figure.dataset.filters = "yes";
  frame.body.on("plotly_selected", (selection) => {
    const found = Object.entries(selection?.range ?? {}).find(([name]) => name.startsWith("x"));
    if (!found) return;
    const parameter = frame.effects[Number(found[0].slice(1) || 1) - 1];
    const text = parameter.kind === "choice" ? framed(parameter, found[1]) : range(...extent(found[1]));
    if (text) state.set({ [`p.${parameter.name}`]: text, page: null }, { push: true });
  });
}

function framed({ bins }, ends) {
  const [low, high] = extent(ends);
  return choices(bins.filter((_, at) => at >= low && at <= high).map((bin) => bin.choice));
}

function title(parameters) {
  return parameters.length === 1 ? `Effect of ${parameters[0].name} on the result` : "Effect of each parameter on the result, the most important first";
}

function table(parameters) {
  const rows = parameters.flatMap(({ name, bins }) =>
    bins.map(({ low, high, choice: value, count, median, p10, p90, best }) => [name, value === null || value === undefined ? low : choice(value), high ?? "", count, median, p10, p90, best]),
  );
  return { columns: ["parameter", "from or choice", "to", "trials", "median", "10 %", "90 %", "best"], rows };
}
