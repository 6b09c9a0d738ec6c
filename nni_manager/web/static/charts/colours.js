// The theme's colours for charts, colour scales, and the colour and symbol of each status.

// Support points of viridis and cividis as red, green and blue; colours between them are interpolated.
const VIRIDIS = "#440154 #482878 #3e4989 #31688e #26828e #1f9e89 #35b779 #6ece58 #b5de2b #fde725".split(" ").map(ofHex);
const CIVIDIS = "#00224e #123570 #3b496c #575d6d #707173 #8a8678 #a59c74 #c3b369 #e1cc55 #fee838".split(" ").map(ofHex);

const STATUS = {
  SUCCEEDED: { name: "--s-succeeded", symbol: "circle", pattern: "", word: "succeeded" },
  EARLY_STOPPED: { name: "--s-early", symbol: "diamond", pattern: "/", word: "early-stopped" },
  RUNNING: { name: "--s-running", symbol: "triangle-up-open", pattern: "-", word: "running" },
  UNKNOWN: { name: "--s-waiting", symbol: "square-open", pattern: "+", word: "unreachable" },
  WAITING: { name: "--s-waiting", symbol: "square-open", pattern: ".", word: "waiting" },
  FAILED: { name: "--s-failed", symbol: "x", pattern: "x", word: "failed" },
};
const STOPPED = { name: "--s-stopped", symbol: "square", pattern: "\\", word: "stopped" };

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const found = {};
  for (const name of ["bg", "fg", "muted", "line", "accent", "panel"]) found[name] = read(`--${name}`) || "#888";
  found.series = [1, 2, 3, 4, 5, 6, 7, 8].map((index) => read(`--c${index}`) || found.accent);
  found.isDark = luminance(found.bg) < 0.5;
  found.status = (status) => {
    const one = STATUS[status] ?? STOPPED;
    return { ...one, colour: read(one.name) || found.muted };
  };
  return found;
}

// The colour of a score from 0 (worst) to 1 (best). The best has the strongest contrast to the background.
export function scored(score, theme) {
  return mixed(VIRIDIS, theme.isDark ? 0.28 + 0.72 * score : 0.92 * (1 - score));
}

// Stops of a scale in plotly's format; the best end, 1, has the strongest contrast.
export function rankScale(theme) {
  const steps = CIVIDIS.map((_, index) => index / (CIVIDIS.length - 1));
  return steps.map((at) => [at, mixed(CIVIDIS, theme.isDark ? 0.22 + 0.78 * at : 1 - at)]);
}

export function faded(colour, share) {
  const [red, green, blue] = channels(colour);
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}

// Returns a function that unsubscribes.
export function onTheme(callback) {
  const observer = new MutationObserver(callback);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  scheme.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    scheme.removeEventListener("change", callback);
  };
}

function mixed(scale, at) {
  const place = Math.min(Math.max(at, 0), 1) * (scale.length - 1);
  const [from, to] = [scale[Math.floor(place)], scale[Math.ceil(place)]];
  const [red, green, blue] = from.map((each, index) => Math.round(each + (to[index] - each) * (place % 1)));
  return `rgb(${red}, ${green}, ${blue})`;
}

function luminance(colour) {
  const [red, green, blue] = channels(colour);
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}

const painter = document.createElement("canvas").getContext("2d");

// Red, green and blue of any CSS colour: a canvas returns it as #rrggbb, or as rgba(…) if it is translucent.
function channels(colour) {
  painter.fillStyle = "#888888";
  painter.fillStyle = colour;
  const text = painter.fillStyle;
  if (!text.startsWith("#")) return text.match(/[\d.]+/g).slice(0, 3).map(Number);
  return ofHex(text);
}

function ofHex(text) {
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}
