// The names of parameters and result keys, requested once per page.

const asked = new Map();

// The answer to `columns` without a filter; after an error, no names.
export function columnsOf(figure) {
  const address = `${figure.dataset.api}/columns`;
  if (!asked.has(address)) asked.set(address, ask(address));
  return asked.get(address);
}

// The next call repeats the request.
export function forget(figure) {
  asked.delete(`${figure.dataset.api}/columns`);
}

async function ask(address) {
  try {
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    if (response.ok) return await response.json();
  } catch {
    // the charts show the error
  }
  asked.delete(address);
  return { parameters: [], keys: [] };
}
