// Axes of whole numbers, such as trials and steps, have `whole` in the layout. Otherwise the library would place fractional
// ticks when few numbers are shown.

// Maximum number of steps of the library's axes, and of a logarithmic axis within one power of ten.
const [MOST_STEPS, MOST_OF_LOG] = [10, 15];

// Sets the step to 1 while the library would choose a smaller one for the visible range.
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

// null: the library's step, which is then at least 1.
function step({ type, range: [low, high] }, nticks) {
  if (type === "log") return 10 ** high - 10 ** low <= MOST_OF_LOG / 2 ? "L1" : null;
  return high - low <= (nticks || MOST_STEPS) / 2 ? 1 : null;
}
