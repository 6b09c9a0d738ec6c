// One panel of the effect chart: 10 % to 90 % band, median and best of each bin, and the best trials.

import { faded } from "./colours.js";
import { finite, number, percent, placed, short } from "./formats.js";
import { axis } from "./plot.js";

// Both axes of a panel. `look`: {columns: panels per row, isLog, name: of the result}.
export function panelAxes({ name, kind, log, importance, ...places }, index, look) {
  const share = finite(importance) ? ` (${percent(importance)})` : "";
  const title = index % look.columns ? "" : look.name;
  const ticks = kind === "choice" ? choiceTicks(placed(places)) : { type: log ? "log" : "linear" };
  return {
    xaxis: axis(`${short(name)}${share}`, { nticks: 5, ...ticks }),
    yaxis: axis(title, { type: look.isLog ? "log" : "linear", nticks: 5 }),
  };
}

function choiceTicks(texts) {
  const ticktext = texts.map((text) => short(text, 10));
  return { type: "linear", tickvals: [...texts.keys()], ticktext, range: [-0.5, texts.length - 0.5] };
}

export function panel(parameter, index, theme) {
  const { bins, points } = parameter;
  const place = { panel: index, showlegend: index === 0, x: bins.map((bin) => placeOf(bin, parameter)) };
  return [
    ...(parameter.kind === "choice" ? choiceSpread : spread)(parameter, place, theme),
    median(parameter, place, theme),
    best(parameter, place, theme),
    ...(points?.number.length ? [trials(parameter, place, theme)] : []),
  ];
}

// The centre of a bin on its axis, or the position of its choice.
function placeOf({ low, high, place }, { kind, log }) {
  if (kind === "choice") return place;
  return log && low > 0 ? Math.sqrt(low * high) : (low + high) / 2;
}

function inWords({ low, high, place }, parameter) {
  return parameter.kind === "choice" ? placed(parameter)[place] : `${number(low)} to ${number(high)}`;
}

function spread({ bins }, place, theme) {
  const edge = { ...place, mode: "lines", line: { width: 0 } };
  const fill = { fill: "tonexty", fillcolor: faded(theme.series[0], 0.2), name: "10 to 90 %" };
  return [
    { ...edge, y: bins.map(({ p10 }) => p10), showlegend: false },
    { ...edge, ...fill, y: bins.map(({ p90 }) => p90) },
  ];
}

function choiceSpread({ bins }, place, theme) {
  const x = place.x.flatMap((at) => [at, at, null]);
  const y = bins.flatMap(({ p10, p90 }) => [p10, p90, null]);
  return [{ ...place, x, y, mode: "lines", line: { color: faded(theme.series[0], 0.4), width: 8 }, name: "10 to 90 %" }];
}

function median(parameter, place, theme) {
  const { kind, bins } = parameter;
  return {
    ...place,
    y: bins.map(({ median }) => median),
    words: bins.map((bin) => [inWords(bin, parameter), `median ${number(bin.median)} of ${bin.count} trials`]),
    mode: kind === "choice" ? "markers" : "lines+markers",
    name: "median",
    line: { color: theme.series[0], width: 2 },
    marker: { symbol: "square", size: 5, color: theme.series[0] },
  };
}

function best(parameter, place, theme) {
  const { bins } = parameter;
  return {
    ...place,
    y: bins.map(({ best }) => best),
    words: bins.map((bin) => [inWords(bin, parameter), `best ${number(bin.best)}`]),
    mode: "markers",
    name: "best of the bin",
    marker: { symbol: "star", size: 7, color: theme.series[1] },
  };
}

function trials({ name, kind, points, ...all }, place, theme) {
  const texts = kind === "choice" ? placed(all) : [];
  const inName = (x) => `${name} ${kind === "choice" ? texts[x] : number(x)}`;
  const places = points.x.map(inName);
  return {
    ...place,
    x: points.x,
    y: points.value,
    customdata: points.number,
    places,
    words: points.number.map((trial, at) => [`trial ${trial}`, number(points.value[at]), places[at]]),
    mode: "markers",
    name: "best trials",
    marker: { symbol: "circle-open", size: 6, color: theme.fg },
  };
}
