// The best so far of several experiments, as steps: by trial number, by time since the first trial, or by clock time.

import { ask } from "./asking.js";
import { colours, onTheme } from "./colours.js";
import { durationUnit, finite } from "./formats.js";
import { Frame } from "./frame.js";
import { hasNoPlace, isLog, leftOut, switches } from "./log_axes.js";
import { axis, choosableAxis, plot, resultAxis } from "./plot.js";

const AXES = { number: "trials", elapsed: "time since the first trial", clock: "clock (UTC)" };
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];

export function mount(figure, { state }) {
  const experiments = JSON.parse(figure.dataset.experiments);
  const within = { figure, frame: new Frame(figure), state };
  const chosen = () => (state.get("x") in AXES ? state.get("x") : "number");
  choices(figure, state, chosen);
  switches(figure, within.frame, state, { x: "logx", y: "logy" });
  let asked = 0;
  let last = null;
  const refresh = async () => {
    const mine = ++asked;
    const x = chosen();
    within.frame.wait(1, "");
    try {
      const curves = await Promise.all(experiments.map((one) => curveOf(figure, one, x)));
      if (mine !== asked) return;
      last = { curves, x };
      await draw(last, within);
    } catch (error) {
      if (mine === asked) within.frame.say(`This chart could not be drawn: ${error.message}`);
    } finally {
      if (mine === asked) within.frame.wait(0, "");
    }
  };
  state.onChange(refresh);
  onTheme(() => last && draw(last, within));
  return refresh();
}

function choices(figure, state, chosen) {
  const label = document.createElement("label");
  const select = document.createElement("select");
  for (const [name, text] of Object.entries(AXES)) select.add(new Option(text, name));
  select.value = chosen();
  select.addEventListener("change", () => state.set({ x: select.value === "number" ? null : select.value }));
  state.onChange(() => (select.value = chosen()));
  label.append("Against ", select);
  figure.querySelector(".chart-choices").replaceChildren(label);
}

async function curveOf(figure, { id, name }, x) {
  const address = `${figure.dataset.api}/${id}/analysis/results?x=${x}`;
  const response = await ask(address, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(`${name}: status ${response.status}`);
  const { direction, best, points } = await response.json();
  return { id, name, direction, ...steps(best, points) };
}

// The last step extends to the last trial with a result.
function steps(best, points) {
  const [x, y, numbers] = [[...best.x], [...best.value], [...best.number]];
  const end = points.x.reduce((most, at) => (finite(at) && at > most ? at : most), -Infinity);
  if (x.length && end > x.at(-1)) {
    x.push(end);
    y.push(y.at(-1));
    numbers.push(null);
  }
  return { x, y, numbers };
}

async function draw({ curves, x }, within) {
  const drawn = curves.filter((curve) => curve.x.length);
  const rows = drawn.flatMap(({ id, name, ...curve }) =>
    curve.x.map((at, index) => [id, name, curve.numbers[index], at, curve.y[index]]),
  );
  const columns = ["experiment", "name", "number", x === "number" ? "x" : "x (ms)", "best so far"];
  const count = `${drawn.length} of ${curves.length} experiments have a result`;
  within.frame.say(drawn.length ? "" : "None of these experiments has a result.");
  if (!drawn.length) return within.frame.show({ title: "Best so far", count, columns, rows });
  const scale = scaleOf(drawn, x);
  const exporter = await plot(within, drawn.map((curve, index) => trace(curve, index, scale)), {
    xaxis: x === "clock" ? axis(scale.title, scale.more) : choosableAxis(scale.title, within.state, "logx", scale.more),
    yaxis: resultAxis("best so far", within.state),
  });
  within.frame.show({ title: titleOf(drawn) + leftOut(hidden(drawn, within.state)), count, columns, rows, exporter });
}

function scaleOf(curves, x) {
  if (x === "clock") return { title: AXES.clock, more: { type: "date" }, of: (at) => new Date(at).toISOString() };
  if (x === "number") return { title: "number of the trial", more: { whole: true }, of: (at) => at };
  const [unit, size] = durationUnit(curves.reduce((most, curve) => Math.max(most, curve.x.at(-1)), 0));
  return { title: `${AXES.elapsed} (${unit})`, more: {}, of: (at) => at / size };
}

function trace({ id, name, x, y }, index, scale) {
  const colour = colours().series[index];
  const label = name === id ? id : `${name} ${id}`;
  return {
    type: "scatter",
    mode: "lines+markers",
    name: label.replace(/&/g, "&amp;").replace(/</g, "&lt;"),
    x: x.map(scale.of),
    y,
    line: { shape: "hv", color: colour, width: 2, dash: DASHES[index] },
    marker: { size: 4, color: colour },
  };
}

// Number of steps that log axes cannot show.
function hidden(curves, state) {
  const log = { x: isLog(state, "logx"), y: isLog(state, "logy") };
  const of = ({ x, y }) => y.filter((value, at) => (log.y && hasNoPlace(value)) || (log.x && hasNoPlace(x[at]))).length;
  return curves.reduce((sum, curve) => sum + of(curve), 0);
}

function titleOf(curves) {
  const directions = new Set(curves.map(({ direction }) => direction));
  if (directions.size > 1) return "Best so far (some are minimized, others maximized)";
  return `Best so far, ${directions.has("maximize") ? "greater" : "smaller"} is better`;
}
