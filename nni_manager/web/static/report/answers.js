// Data of the report: answers about trials by question, compressed, as text in the page.

async function unpacked(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// `asked`: a list of {question, choice, answer}; `charted`: chart → parameters that can be chosen.
const held = JSON.parse(await unpacked("answers"));

// The address of plotly's script, which the report contains, too.
export async function plotlyAddress() {
  return URL.createObjectURL(new Blob([await unpacked("plotly")], { type: "text/javascript" }));
}

// Parameters of a question that the reader can choose; all others are fixed at the creation of the report.
const CHOSEN = ["parameter", "a", "b"];

// The answer to an address; undefined: not in the report.
export function answerTo(address) {
  const [path, query = ""] = address.split("?");
  const question = path.slice(path.lastIndexOf("/") + 1);
  const given = new URLSearchParams(query);
  const chosen = CHOSEN.filter((name) => given.get(name));
  const fits = (one) => one.question === question && chosen.every((name) => one.choice[name] === given.get(name));
  return held.asked.find(fits)?.answer;
}

export function columns() {
  return held.asked.find(({ question }) => question === "columns").answer;
}

export function charted(chart) {
  return held.charted[chart] ?? [];
}
