// Mounts every chart of the page, each with its own module, when it first comes into view.

import { state } from "../state.js";

const MODULES = new Set([
  "controls",
  "results",
  "curves",
  "parallel",
  "effect",
  "importance",
  "pair",
  "pareto",
  "timeline",
  "distribution",
  "best_curves",
]);
const OWN = new Set(["controls", "parallel", "effect"]);

const seen = new IntersectionObserver(
  (found) => {
    for (const { isIntersecting, target } of found) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      mount(target);
    }
  },
  { rootMargin: "300px" },
);

// What is sketched comes first: to begin, the library takes the browser a second or two.
const sketched = document.querySelector("[data-sketched]")
  ? new Promise((resolve) => document.addEventListener("chartanswer", resolve, { once: true }))
  : Promise.resolve();

// The library is made ready while a chart's first answer is awaited; the chart itself says what fails. What is sketched
// does without it until the reader reaches for it.
async function begin(element) {
  const { plotly } = await import("./plot.js");
  await sketched;
  plotly(element).catch(() => {});
}

function needsLibrary({ dataset }) {
  return !OWN.has(dataset.chart) && dataset.sketched === undefined;
}

async function mount(element) {
  const name = element.dataset.chart;
  if (!MODULES.has(name)) return;
  if (needsLibrary(element)) begin(element);
  try {
    const chart = await import(`./${name}.js`);
    chart.mount(element, { experiment: element.dataset.experiment, state });
  } catch (error) {
    element.append(`This chart could not be loaded: ${error.message}. Reload the page.`);
  }
}

// Charts of parts that are put in place later are mounted, too.
function mountAll(root) {
  for (const element of root.querySelectorAll("[data-chart]:not([data-mounted])")) {
    element.dataset.mounted = "yes";
    seen.observe(element);
  }
}

mountAll(document);
document.addEventListener("replaced", ({ target }) => mountAll(target));
document.addEventListener("drawer", ({ detail }) => mountAll(detail.drawer));
