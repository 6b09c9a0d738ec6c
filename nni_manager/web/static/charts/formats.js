// Numbers, durations and times as text.

const MINUTE = 60_000;
const UNITS = [
  ["d", 24 * 60 * MINUTE],
  ["h", 60 * MINUTE],
  ["min", MINUTE],
  ["s", 1000],
];

// Six significant digits; NaN and infinite values by name, "" for null.
export function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || !Number.isFinite(value)) return String(value);
  return String(Number(value.toPrecision(6)));
}

// A whole number. Formatted by hand, because the browser's formatter is slow to initialize.
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

// Plain text is unchanged; other values become JSON.
export function choice(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// Labels of the positions of a choice: the choices, then one position for all others.
export function placed({ choices, others }) {
  return [...choices.map(choice), ...(others ? [many(others, "other")] : [])];
}

export function short(text, length = 22) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

// A duration in its two largest units, as in `domain/formats.py`.
export function duration(ms) {
  const [day, hour, minute, second] = UNITS.map(([, size]) => Math.floor(ms / size));
  if (day) return `${day} d ${hour % 24} h`;
  if (hour) return `${hour} h ${minute % 60} min`;
  if (minute) return `${minute} min ${second % 60} s`;
  return second < 10 ? `${(Math.floor(ms / 100) / 10).toFixed(1)} s` : `${second} s`;
}

// The largest unit in which `ms` is at least 2; used for duration axes.
export function durationUnit(ms) {
  return UNITS.find(([, size]) => ms >= 2 * size) ?? ["s", 1000];
}

export function moment(ms) {
  return ms === null || ms === undefined ? "" : `${new Date(ms).toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

// Answers contain NaN and infinite values as strings.
export function finite(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// Minimum and maximum of the finite values in one pass, or null.
export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!finite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

// A share with two digits; negligible shares have fewer.
export function percent(share) {
  return share > 0 && share < 0.001 ? "< 0.1 %" : `${Number((100 * share).toPrecision(2))} %`;
}

// "1 trial", "2,000 trials"
export function many(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

// Escapes tags that plotly would read as markup.
export function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
