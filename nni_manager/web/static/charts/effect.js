// Effect of each parameter on the result: binned, most important first. A selected region becomes a filter.

import { run, without } from "./chart.js";
import { choosing } from "./choosing.js";
import { colours } from "./colours.js";
import { columnsOf } from "./columns.js";
import { panel, panelAxes } from "./effect_panel.js";
import { placed } from "./formats.js";
import { hasNoPlace, isLog, leftOut } from "./log_axes.js";
import { nameOf } from "./plot.js";
import { choices, range } from "./ranges.js";
import { OwnChart } from "./sketch/own_chart.js";

// Size of a panel in pixels.
const NARROWEST = 260;
const [HEIGHT, ALONE, AROUND] = [190, 300, 40];

export function mount(figure, { state }) {
  const chosen = (value) => state.set({ effect: value || null });
  const menu = choosing(figure, "Effect of", { "": "the most important parameters" }, chosen);
  columnsOf(figure).then(({ parameters }) => offer(menu, parameters, state));
  const view = { menu, body: null, chart: null, parameters: [] };
  const chart = run(figure, state, {
    question: "effect",
    axes: { y: "logy" },
    extra: () => ({ parameter: state.get("effect") }),
    empty: ({ of, parameters }) =>
      parameters.some(({ bins }) => bins.length) ? "" : without("result", of, "Effects are computed from results"),
    draw: (answer, within) => draw(answer, within, view),
  });
  new ResizeObserver(() => view.body && view.body.clientWidth !== view.drawnAt && chart.render()).observe(figure);
}

function offer(menu, parameters, state) {
  menu.offer(
    parameters.map(({ name }) => name),
    state.get("effect") ?? "",
  );
}

function draw(answer, within, view) {
  const { frame, state } = within;
  offer(view.menu, answer.parameters, state);
  const parameters = answer.parameters.filter(({ bins }) => bins.length);
  const rows = Math.ceil(parameters.length / Math.max(1, Math.floor(frame.body.clientWidth / NARROWEST)));
  const columns = Math.ceil(parameters.length / rows);
  frame.body.style.height = `${rows * (parameters.length > 1 ? HEIGHT : ALONE) + AROUND}px`;
  const look = { columns, isLog: isLog(state, "logy"), name: nameOf(within) };
  const theme = colours();
  const traces = parameters.flatMap((parameter, index) => panel(parameter, index, theme));
  view.chart ??= new OwnChart(within, (index, ends) => filter(view.parameters[index], ends, state));
  const exporter = view.chart.show(traces, {
    panels: parameters.map((parameter, index) => panelAxes(parameter, index, look)),
    grid: { rows, columns, xgap: 0.16, ygap: 0.42 },
  });
  Object.assign(view, { body: frame.body, drawnAt: frame.body.clientWidth, parameters });
  const words = title(parameters, look.name) + leftOut(look.isLog ? hidden(parameters) : 0);
  return { ...table(parameters), title: words, exporter };
}

// A selection in a panel filters by its parameter.
function filter({ name, kind, choices: all }, [low, high], state) {
  const text = kind === "choice" ? choices(all.filter((_, at) => at >= low && at <= high)) : range(low, high);
  if (text) state.set({ [`p.${name}`]: text, page: null }, { push: true });
}

// Number of medians, best values and trials that a log axis cannot show.
function hidden(parameters) {
  const values = parameters.flatMap(({ bins, points }) => [...bins.flatMap(({ median, best }) => [median, best]), ...points.value]);
  return values.filter(hasNoPlace).length;
}

function title(parameters, name) {
  if (parameters.length === 1) return `Effect of ${parameters[0].name} on the ${name}`;
  return `Effect of each parameter on the ${name}, most important first`;
}

function table(parameters) {
  const rows = parameters.flatMap(({ name, kind, bins, ...places }) =>
    bins.map((bin) => [
      name,
      kind === "choice" ? placed(places)[bin.place] : bin.low,
      kind === "choice" ? "" : bin.high,
      bin.count,
      bin.median,
      bin.p10,
      bin.p90,
      bin.best,
    ]),
  );
  return { columns: ["parameter", "from or choice", "to", "trials", "median", "10 %", "90 %", "best"], rows };
}
