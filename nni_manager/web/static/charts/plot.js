// Charts drawn by plotly, which is loaded once, for the first chart that needs it. Traces use only SVG: the page's
// content security policy forbids code generated at run time, which WebGL traces need.

import { colours, faded } from "./colours.js";
import { plain } from "./formats.js";
import { isLog } from "./log_axes.js";
import { follow, point } from "./opening.js";
import { walk } from "./walking.js";
import { settle } from "./whole_axes.js";

let loading = null;

// Loads the library. After a failure the next call tries again.
export function plotly(figure) {
  loading ??= load(figure.dataset.plotly ?? new URL("../plotly.min.js", import.meta.url).href).catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

function load(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("the library that draws charts could not be loaded"));
    document.head.append(script);
  });
}

// On phones a drag scrolls.
export function isNarrow() {
  return matchMedia("(max-width: 40rem)").matches;
}

// The name of the result key.
export function nameOf({ key }, usual = "result") {
  return key === "default" ? usual : key;
}

// Draws into the frame, and returns an image exporter. A point whose `customdata` is a trial's number opens that trial.
// `begun()`: called when the library first draws the chart; with `data-sketched` on the figure, that is at the reader's
// first interaction.
export async function plot(within, traces, layout, begun = () => {}) {
  const wanted = completed({ height: within.frame.body.clientHeight, ...layout });
  const draw = () => drawn(within, traces, wanted, begun);
  if (within.figure.dataset.sketched === undefined) return draw();
  const { sketched } = await import("./sketch/sketched.js");
  return sketched(within, traces, wanted, draw);
}

async function drawn({ figure, frame, state }, traces, layout, begun) {
  const library = await plotly(figure);
  await library.react(frame.body, traces, layout, {
    displaylogo: false,
    responsive: true,
    displayModeBar: isNarrow() ? false : "hover",
    modeBarButtonsToRemove: ["toImage", "lasso2d", "autoScale2d"],
  });
  await settle(library, frame.body);
  if (!frame.body.dataset.listens) {
    listen(library, { figure, frame, state });
    begun();
  }
  return (format) => image(library, frame.body, format);
}

// Releases the library's data of charts that were removed from the page.
export function release(body) {
  if (body.dataset.listens) window.Plotly.purge(body);
}

function listen(library, { figure, frame, state }) {
  frame.body.dataset.listens = "yes";
  frame.body.on("plotly_click", ({ points, event }) => {
    const found = points.find((each) => Number.isInteger(each.customdata));
    if (found) follow(figure, state, found.customdata, event);
  });
  frame.body.on("plotly_hover", ({ points }) => {
    point(figure, points.map(({ customdata }) => customdata).find(Number.isInteger) ?? null);
  });
  frame.body.on("plotly_relayout", () => settle(library, frame.body));
  frame.body.on("plotly_unhover", () => point(figure, null));
  const show = (found) => {
    if (found) library.Fx.hover(frame.body, [found.place], found.subplot);
    else library.Fx.unhover(frame.body);
  };
  walk({ figure, frame, state }, () => pointsOf(frame.body), show);
}

// Every point with a trial, from left to right.
function pointsOf(body) {
  const found = [];
  (body.data ?? []).forEach(({ x, y, xaxis, yaxis, customdata, visible }, curveNumber) => {
    if (!Array.isArray(customdata) || visible === "legendonly") return;
    const subplot = `${xaxis ?? "x"}${yaxis ?? "y"}`;
    customdata.forEach((trial, at) => {
      const place = { curveNumber, pointNumber: at };
      if (Number.isInteger(trial)) found.push({ trial, x: x[at], y: y[at], place, subplot });
    });
  });
  return found.sort((one, other) => one.x - other.x);
}

async function image(library, element, format) {
  const theme = colours();
  const { width, height } = element.getBoundingClientRect();
  const ground = { paper_bgcolor: theme.panel, plot_bgcolor: theme.panel };
  const drawn = { data: element.data, layout: { ...element.layout, ...ground } };
  const url = await library.toImage(drawn, { format, width, height, scale: format === "png" ? 2 : 1 });
  return blobOf(url);
}

// Decoded by hand, because the content security policy forbids fetching data URLs.
function blobOf(url) {
  const [head, data] = [url.slice(5, url.indexOf(",")), url.slice(url.indexOf(",") + 1)];
  const type = head.split(";")[0];
  if (!head.endsWith("base64")) return new Blob([decodeURIComponent(data)], { type });
  return new Blob([Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))], { type });
}

// Milliseconds since the epoch of a time in plotly's format.
export function utc(text) {
  return Date.parse(`${String(text).replace(" ", "T")}Z`);
}

// A layout with the common style of all charts.
export function completed(layout) {
  return merged(common(colours()), layout);
}

function common(theme) {
  return {
    paper_bgcolor: "rgba(0, 0, 0, 0)",
    plot_bgcolor: "rgba(0, 0, 0, 0)",
    font: { family: "system-ui, sans-serif", size: 12, color: theme.fg },
    margin: { l: 58, r: 12, t: 8, b: 44 },
    hovermode: "closest",
    hoverlabel: { bgcolor: theme.panel, bordercolor: theme.line, font: { color: theme.fg } },
    dragmode: isNarrow() ? false : "zoom",
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    modebar: { bgcolor: "rgba(0, 0, 0, 0)", color: theme.muted, activecolor: theme.accent },
    uirevision: "kept",
  };
}

// An axis with its title; `more` overrides the defaults. `whole` in it: no ticks between whole numbers.
export function axis(title, more = {}) {
  const theme = colours();
  return {
    title: { text: plain(title), standoff: 8, font: { size: 12, color: theme.muted } },
    gridcolor: faded(theme.line, 0.7),
    linecolor: theme.line,
    zerolinecolor: theme.line,
    tickfont: { size: 11 },
    automargin: true,
    ...more,
  };
}

// An axis that the reader can make logarithmic; `name`: of that setting in the address.
export function choosableAxis(title, state, name, more = {}) {
  const isIt = isLog(state, name);
  const type = isIt ? "log" : "linear";
  return axis(title, { type, exponentformat: "power", ...more, uirevision: `${more.uirevision ?? ""} ${isIt}` });
}

export function resultAxis(title, state) {
  return choosableAxis(title, state, "logy");
}

function merged(one, other) {
  return { ...one, ...other, legend: { ...one.legend, ...other.legend }, margin: { ...one.margin, ...other.margin } };
}
