// Filters in the address: "LOW..HIGH" with optional ends, or choices "a,b", as JSON if plain text is ambiguous.

// A range that contains both ends after rounding to six digits.
export function range(low, high) {
  return `${rounded(low, Math.floor)}..${rounded(high, Math.ceil)}`;
}

// [low, high] with null for an open end, or null if the text is not a range.
export function parsedRange(text) {
  const found = /^([^,"]*)\.\.([^,"]*)$/.exec(text ?? "");
  if (!found) return null;
  const [low, high] = [found[1], found[2]].map((side) => (side === "" ? null : Number(side)));
  return Number.isNaN(low) || Number.isNaN(high) ? null : [low, high];
}

export function choices(values) {
  return values.map((value) => (isPlain(value) ? value : JSON.stringify(value))).join(",");
}

// A list of names, as JSON if plain text is ambiguous.
export function names(list) {
  return list.map((name) => (/,|^["[{]/.test(name) ? JSON.stringify(name) : name)).join(",");
}

// Whether a choice is in the text; an empty text contains all choices.
export function includes(text, value) {
  return !text || `,${text},`.includes(`,${choices([value])},`);
}

// Text that is neither JSON nor contains a separator.
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
