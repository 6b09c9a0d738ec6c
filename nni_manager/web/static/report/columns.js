// Replaces the request for columns: the parameters that the report has charts of.

import { charted, columns } from "./answers.js";

export async function columnsOf(figure) {
  const known = columns();
  const names = new Set(charted(figure.dataset.chart));
  return { ...known, parameters: known.parameters.filter(({ name }) => names.has(name)) };
}

export function forget() {}
