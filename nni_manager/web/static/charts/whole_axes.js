// Axes of whole numbers, as of trials and steps, have `whole` in the layout: left to itself, the library would put
// fractions between such numbers where few are shown.

// Into how many steps the library divides an axis at most; a logarithmic one that shows less than a power of ten.
const [MOST_STEPS, MOST_OF_LOG] = [10, 15];

// Gives each such axis the step 1 while the library would choose a smaller one for what it shows now.
export async function settle(library, body) {
  const changes = wholes(body.layout).flatMap(([name, axis]) => {
    const wanted = step(body._fullLayout[name], axis.nticks);
    if (wanted === (axis.dtick ?? null)) return [];
    return [[`${name}.dtick`, wanted], [`${name}.tickmode`, wanted === null ? "auto" : "linear"]];
  });
  if (changes.length) await library.relayout(body, Object.fromEntries(changes));
}

function wholes(layout) {
  return Object.entries(layout).filter(([name, axis]) => /^[xy]axis\d*$/.test(name) && axis?.whole);
}

// null: the library's own, which is at least 1 then.
function step({ type, range: [low, high] }, nticks) {
  if (type === "log") return 10 ** high - 10 ** low <= MOST_OF_LOG / 2 ? "L1" : null;
  return high - low <= (nticks || MOST_STEPS) / 2 ? 1 : null;
}
