// One panel of the effect of parameters: band of 10 to 90 %, median and best of each bin, and the best trials.

import { faded } from "./colours.js";
import { choice, finite, percent, plain, short } from "./formats.js";
import { axis } from "./plot.js";

// The name of the nth axis: x, x2, x3 …
export function nth(name, index) {
  return index ? `${name}${index + 1}` : name;
}

// Both axes of a panel. `look`: {columns: panels in a row, isLog, name: of the result}.
export function panelAxes({ name, kind, log, choices, importance }, index, look) {
  const share = finite(importance) ? ` (${percent(importance)})` : "";
  const title = index % look.columns ? "" : look.name;
  return {
    [nth("xaxis", index)]: axis(`${short(name)}${share}`, {
      type: log ? "log" : "linear",
      exponentformat: "power",
      nticks: 5,
      ...(kind === "choice" ? choiceTicks(choices) : {}),
    }),
    [nth("yaxis", index)]: axis(title, { type: look.isLog ? "log" : "linear", nticks: 5, exponentformat: "power" }),
  };
}

function choiceTicks(choices) {
  const ticktext = choices.map((value) => plain(short(choice(value), 10)));
  return { type: "linear", tickvals: [...choices.keys()], ticktext, range: [-0.5, choices.length - 0.5] };
}

export function panel(parameter, index, theme) {
  const place = {
    type: "scatter",
    xaxis: nth("x", index),
    yaxis: nth("y", index),
    showlegend: index === 0,
    x: parameter.bins.map((bin) => placeOf(bin, parameter)),
  };
  return [
    ...(parameter.kind === "choice" ? choiceSpread : spread)(parameter, place, theme),
    median(parameter, place, theme),
    best(parameter, place, theme),
    ...(parameter.points?.number.length ? [trials(parameter, place, theme)] : []),
  ];
}

// The middle of a bin on its axis, or the place of its choice.
function placeOf({ low, high, choice: own }, { kind, log, choices }) {
  if (kind === "choice") return choices.findIndex((value) => JSON.stringify(value) === JSON.stringify(own));
  return log && low > 0 ? Math.sqrt(low * high) : (low + high) / 2;
}

function spread({ bins }, place, theme) {
  const edge = { ...place, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
  const fill = { fill: "tonexty", fillcolor: faded(theme.series[0], 0.2), name: "10 to 90 %" };
  return [
    { ...edge, y: bins.map(({ p10 }) => p10), showlegend: false },
    { ...edge, ...fill, y: bins.map(({ p90 }) => p90) },
  ];
}

function choiceSpread({ bins }, place, theme) {
  const bars = {
    type: "data",
    symmetric: false,
    array: bins.map(({ p90, median }) => p90 - median),
    arrayminus: bins.map(({ p10, median }) => median - p10),
    color: faded(theme.series[0], 0.4),
    thickness: 8,
    width: 0,
  };
  const look = { mode: "markers", marker: { opacity: 0 }, hoverinfo: "skip", name: "10 to 90 %" };
  return [{ ...place, ...look, y: bins.map(({ median }) => median), error_y: bars }];
}

function median({ kind, bins }, place, theme) {
  return {
    ...place,
    y: bins.map(({ median }) => median),
    text: bins.map(({ count }) => `${count} trials`),
    hovertemplate: "median %{y:.6g} of %{text}<extra></extra>",
    mode: kind === "choice" ? "markers" : "lines+markers",
    name: "median",
    line: { color: theme.series[0], width: 2 },
    marker: { symbol: "square", size: 5, color: theme.series[0] },
  };
}

function best({ bins }, place, theme) {
  return {
    ...place,
    y: bins.map(({ best }) => best),
    mode: "markers",
    name: "best of the bin",
    marker: { symbol: "star", size: 7, color: theme.series[1] },
    hovertemplate: "best %{y:.6g}<extra></extra>",
  };
}

function trials({ points }, place, theme) {
  return {
    ...place,
    x: points.x,
    y: points.value,
    customdata: points.number,
    mode: "markers",
    name: "best trials",
    marker: { symbol: "circle-open", size: 6, color: theme.fg },
    hovertemplate: "trial %{customdata}<br>%{y:.6g}<extra></extra>",
  };
}
