// Importance of each parameter; the sentence states method and sample.

import { run } from "./chart.js";
import { colours } from "./colours.js";
import { percent, plain, short } from "./formats.js";
import { axis, plot } from "./plot.js";

// Text until the importance exists; then the answer's own sentence is shown.
const STATES = { computing: "Computing the importance of parameters." };
// Height of a bar with its label, and of the margins, in pixels; a chart of default height limits the number of bars.
const [BAR, AROUND, FITTING] = [18, 60, 14];
// Bars shorter than this part of the longest have their label outside, because it does not fit inside.
const SHORT = 0.2;

export function mount(figure, { state }) {
  run(figure, state, {
    question: "importance",
    empty: ({ state, sentence, importances }) =>
      state === "ready" && importances.length ? "" : STATES[state] ?? (sentence || "No importance yet."),
    draw,
  });
}

async function draw(answer, within) {
  const { frame, state } = within;
  const sorted = [...answer.importances].sort((one, other) => one.value - other.value);
  const theme = colours();
  const shares = sorted.map(({ value }) => 100 * value);
  const least = SHORT * shares.at(-1);
  frame.body.style.height = sorted.length > FITTING ? `${BAR * sorted.length + AROUND}px` : "";
  const exporter = await plot(
    within,
    [
      {
        type: "bar",
        orientation: "h",
        x: shares,
        y: sorted.map((_, index) => index),
        customdata: sorted.map(({ name }) => plain(name)),
        marker: { color: theme.series[0] },
        text: sorted.map(({ value }) => plain(percent(value))),
        textposition: shares.map((share) => (share < least ? "outside" : "auto")),
        textangle: 0,
        constraintext: "none",
        textfont: { size: 11 },
        insidetextfont: { color: theme.panel },
        cliponaxis: false,
        hovertemplate: "%{customdata}: %{x:.4g} %<br>click to show its effect<extra></extra>",
      },
    ],
    {
      showlegend: false,
      dragmode: false,
      xaxis: axis("share of the importance", { ticksuffix: " %", rangemode: "tozero" }),
      yaxis: axis("", {
        tickvals: sorted.map((_, index) => index),
        ticktext: sorted.map(({ name }) => plain(short(name))),
      }),
    },
  );
  frame.shown = sorted.map(({ name }) => name);
  if (!frame.body.dataset.chooses) listen(frame, state);
  return {
    title: "Which parameters matter",
    count: answer.sentence || [answer.method, answer.sample].filter(Boolean).join(", "),
    columns: ["parameter", "importance"],
    rows: [...sorted].reverse().map(({ name, value }) => [name, value]),
    exporter,
  };
}

function listen(frame, state) {
  frame.body.dataset.chooses = "yes";
  frame.body.on("plotly_click", ({ points }) => state.set({ effect: frame.shown[points[0].y] }));
}
