// Filters of the address: "LOW..HIGH" with either side open, or choices "a,b", JSON where a plain word will not do.

// A range that contains both ends when they are written with six digits.
export function range(low, high) {
  return `${rounded(low, Math.floor)}..${rounded(high, Math.ceil)}`;
}

// [low, high] with null for an open side, or null when the text is no range.
export function parsedRange(text) {
  const found = /^([^,"]*)\.\.([^,"]*)$/.exec(text ?? "");
  if (!found) return null;
  const [low, high] = [found[1], found[2]].map((side) => (side === "" ? null : Number(side)));
  return Number.isNaN(low) || Number.isNaN(high) ? null : [low, high];
}

export function choices(values) {
  return values.map((value) => (isPlain(value) ? value : JSON.stringify(value))).join(",");
}

// A list of names, in JSON where a comma or how it begins would be misread.
export function names(list) {
  return list.map((name) => (/,|^["[{]/.test(name) ? JSON.stringify(name) : name)).join(",");
}

// Whether a choice is among those of the text; without a text, every one is.
export function includes(text, value) {
  return !text || `,${text},`.includes(`,${choices([value])},`);
}

// Of a word that neither reads as JSON nor has a separator.
function isPlain(value) {
  if (typeof value !== "string" || value === "" || /[,"]|\.\./.test(value) || value.trim() !== value) return false;
  try {
    JSON.parse(value);
    return false;
  } catch {
    return true;
  }
}

function rounded(value, towards) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const unit = 10 ** (Math.floor(Math.log10(Math.abs(value) || 1)) - 5);
  return String(Number((towards(value / unit) * unit).toPrecision(6)));
}
