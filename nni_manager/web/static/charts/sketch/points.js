// The points of a drawing.

// The points of a trace with a trial or a label: {trial or null, panel, x and y: values, left and top: pixels, words: lines
// of the label, at: text for x}. `placed`: [left, top] of each point, or null.
export function pointsOf({ panel = 0, x, y, customdata, words, places }, placed) {
  if (!words && !Array.isArray(customdata)) return [];
  const found = placed.map((place, index) => {
    const trial = customdata?.[index];
    return {
      ...{ trial: Number.isInteger(trial) ? trial : null, panel },
      ...{ x: x[index], y: y[index], words: words?.[index], at: places?.[index] },
      ...{ left: place?.[0], top: place?.[1] },
    };
  });
  return found.filter(({ trial, words: said, left }) => left !== undefined && (said || trial !== null));
}

// The point nearest to a position, within the maximum distance; of several, the last. null: none.
export function nearest(points, left, top, most) {
  let found = null;
  let least = most;
  for (const point of points) {
    const away = Math.hypot(point.left - left, point.top - top);
    if (away <= least) [found, least] = [point, away];
  }
  return found;
}
