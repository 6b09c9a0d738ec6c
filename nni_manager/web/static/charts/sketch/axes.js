// From values to pixels, and the ticks of an axis: linear, logarithmic or of time (UTC).

import { count, extent, number, short } from "../formats.js";

// Minimum distance of ticks and average width of a letter, in pixels.
const LEAST_PX = { across: 80, up: 40 };
const LETTER_PX = 6.5;
const SECOND = 1000;
const DAY = 86_400 * SECOND;
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200].map((s) => s * SECOND);
const DAYS = [1, 2, 7, 14, 30, 90, 365].map((days) => days * DAY);

// `axis`: as in the library; `from`, `to`: its ends in pixels; `beside`: margin at both ends in pixels. Returns {of: pixel of
// a value, back: value of a pixel, ticks: a list of {at: pixel, text, isZero}}.
export function scaleOf(axis, values, [from, to], beside) {
  const [forth, back] = axis.type === "log" ? [Math.log10, (at) => 10 ** at] : [same, same];
  const length = Math.abs(to - from);
  const [low, high] = axis.range ?? widened(extent(values.map(forth)) ?? [0, 1], length, beside);
  const place = (at) => from + ((at - low) / (high - low)) * (to - from);
  const room = Math.min(Math.max(length / (from < to ? LEAST_PX.across : LEAST_PX.up), 2), 9) + 1;
  const ticks = axis.tickvals ? named(axis, length) : (TICKS[axis.type] ?? linear)(low, high, axis.nticks ?? room, axis.whole);
  return {
    of: (value) => (value === null ? NaN : place(forth(value))),
    back: (pixel) => back(low + ((pixel - from) / (to - from)) * (high - low)),
    ticks: ticks.map(({ at, ...tick }) => ({ at: Math.round(place(at)) + 0.5, ...tick })),
  };
}

const TICKS = { log: logarithmic, date: timely };

function same(value) {
  return value;
}

// Names, while there is room for each.
function named({ tickvals, ticktext }, length) {
  const letters = Math.max(Math.floor(length / tickvals.length / LETTER_PX), 2);
  return tickvals.map((at, index) => ({ at, text: short(ticktext[index], letters) }));
}

function widened([low, high], length, beside) {
  if (low === high) return [low - Math.max(1, Math.abs(low) / 1e6), high + Math.max(1, Math.abs(high) / 1e6)];
  const more = ((high - low) * beside) / Math.max(length - 2 * beside, 1);
  return [low - more, high + more];
}

// `isWhole`: no ticks between whole numbers.
function linear(low, high, most, isWhole) {
  const step = Math.max(roundStep((high - low) / most), isWhole ? 1 : 0);
  return multiples(low, high, step).map((at) => ({ at, text: inShort(at), isZero: at === 0 }));
}

// The smallest 1, 2 or 5 times a power of ten that is at least this large.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9));
}

function multiples(low, high, step) {
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

function inShort(value) {
  const text = Number.isInteger(value) && Math.abs(value) < 1e9 ? count(value) : number(value);
  return text.replace("-", "−");
}

// Powers of ten; over few powers also 2 and 5 times those; within one power, round values as on a linear axis. `low`
// and `high`: powers of ten, as the `at` of each tick.
export function logarithmic(low, high, most, isWhole) {
  if (high - low < 0.7) return linear(10 ** low, 10 ** high, most, isWhole).map((tick) => ({ ...tick, at: Math.log10(tick.at) }));
  const every = Math.ceil((high - low) / most);
  const factors = high - low < 2.5 ? [1, 2, 5] : [1];
  const powers = multiples(Math.floor(low), high, every);
  const found = powers.flatMap((power) => factors.map((factor) => factor * 10 ** power));
  return found
    .map((value) => ({ at: Math.log10(value), text: inShort(Number(value.toPrecision(3))) }))
    .filter(({ at }) => at >= low && at <= high);
}

function timely(low, high, most) {
  const least = (high - low) / most;
  const step = [...TIMES, ...DAYS].find((one) => one >= least) ?? roundStep(least / DAY) * DAY;
  return multiples(low, high, step).map((at, index) => ({ at, text: moment(at, step, index === 0) }));
}

// The first tick includes the date.
function moment(ms, step, isFirst) {
  const text = new Date(ms).toISOString();
  const [day, time] = [text.slice(5, 10), text.slice(11, step < 60 * SECOND ? 19 : 16)];
  if (step >= DAY) return text.slice(0, 10);
  return isFirst || time.startsWith("00:00") ? `${day} ${time}` : time;
}
