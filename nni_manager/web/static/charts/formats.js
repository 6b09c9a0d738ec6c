// Numbers, durations and times as text.

const MINUTE = 60_000;
const UNITS = [
  ["d", 24 * 60 * MINUTE],
  ["h", 60 * MINUTE],
  ["min", MINUTE],
  ["s", 1000],
];

// Six significant digits; what is no finite number by its name, nothing for null.
export function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || !Number.isFinite(value)) return String(value);
  return String(Number(value.toPrecision(6)));
}

// A whole number; by hand, as a browser takes long to begin with what it has for that.
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

// A plain word stays as it is, anything else is JSON.
export function choice(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// What stands at each place of a choice: the choices, then, at one place, all others.
export function placed({ choices, others }) {
  return [...choices.map(choice), ...(others ? [many(others, "other")] : [])];
}

export function short(text, length = 22) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

// In its two largest units, as `domain/formats.py` has it.
export function duration(ms) {
  const [day, hour, minute, second] = UNITS.map(([, size]) => Math.floor(ms / size));
  if (day) return `${day} d ${hour % 24} h`;
  if (hour) return `${hour} h ${minute % 60} min`;
  if (minute) return `${minute} min ${second % 60} s`;
  return second < 10 ? `${(Math.floor(ms / 100) / 10).toFixed(1)} s` : `${second} s`;
}

// The largest unit in which `ms` is at least 2: an axis of durations goes by it.
export function durationUnit(ms) {
  return UNITS.find(([, size]) => ms >= 2 * size) ?? ["s", 1000];
}

export function moment(ms) {
  return ms === null || ms === undefined ? "" : `${new Date(ms).toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

// The answers write NaN and infinite values as strings.
export function finite(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// Lowest and highest of the finite values in one pass, or null.
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

// Two digits of a share, and no more of one that does not matter.
export function percent(share) {
  return share > 0 && share < 0.001 ? "< 0.1 %" : `${Number((100 * share).toPrecision(2))} %`;
}

// "1 trial", "2,000 trials"
export function many(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

// For plotly, which takes some tags in texts for markup.
export function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
