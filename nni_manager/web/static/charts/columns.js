// The names of parameters and result keys, asked once a page.

const asked = new Map();

// What `columns` answers without a filter; where that fails, no names.
export function columnsOf(figure) {
  const address = `${figure.dataset.api}/columns`;
  if (!asked.has(address)) asked.set(address, ask(address));
  return asked.get(address);
}

// The next call asks again.
export function forget(figure) {
  asked.delete(`${figure.dataset.api}/columns`);
}

async function ask(address) {
  try {
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    if (response.ok) return await response.json();
  } catch {
    // the charts say what is wrong
  }
  asked.delete(address);
  return { parameters: [], keys: [] };
}
