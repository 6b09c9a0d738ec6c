// Two objectives: each trial by its values, those of the Pareto set joined.

import { colours, faded } from "../charts/colours.js";
import { plain } from "../charts/formats.js";
import { Frame } from "../charts/frame.js";
import { axis, plot } from "../charts/plot.js";
import { paretoSet } from "./answers.js";

export async function mount(figure, { state }) {
  const { names, trials, front } = paretoSet();
  const frame = new Frame(figure);
  const theme = colours();
  const marks = (points, name, mode, marker) => ({
    type: "scatter",
    mode,
    name,
    x: points.map(([x]) => x),
    y: points.map(([, y]) => y),
    customdata: points.map((point) => point[2]),
    marker,
    line: { color: theme.series[1], shape: "linear" },
    hovertemplate: `trial %{customdata}<br>${plain(names[0])} %{x:.6g}<br>${plain(names[1])} %{y:.6g}<extra></extra>`,
  });
  const exporter = await plot(
    { figure, frame, state },
    [
      marks(trials, "trials", "markers", { color: faded(theme.series[0], 0.5), size: 6 }),
      marks(front, "Pareto set", "lines+markers", { color: theme.series[1], size: 9, symbol: "diamond" }),
    ],
    { xaxis: axis(names[0]), yaxis: axis(names[1]) },
  );
  const rows = front.map(([x, y, number]) => [number, x, y]);
  const title = `Pareto set by ${names[0]} and ${names[1]}`;
  frame.show({ title, count: `${front.length} of the set, ${trials.length} trials`, columns: ["trial", ...names.slice(0, 2)], rows, exporter });
}
