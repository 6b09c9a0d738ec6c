// Mounts each chart of the page, with its own module, when it first comes into view.

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

// Sketched charts come first: the library takes the browser a second or two to start.
const sketched = document.querySelector("[data-sketched]")
  ? new Promise((resolve) => document.addEventListener("chartanswer", resolve, { once: true }))
  : Promise.resolve();

// The library loads while a chart waits for its first answer; the chart itself shows errors. Sketched charts load it on
// first use.
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

// Charts in parts that are inserted later are mounted, too.
function mountAll(root) {
  for (const element of root.querySelectorAll("[data-chart]:not([data-mounted])")) {
    element.dataset.mounted = "yes";
    seen.observe(element);
  }
}

mountAll(document);
document.addEventListener("replaced", ({ target }) => mountAll(target));
document.addEventListener("drawer", ({ detail }) => mountAll(detail.drawer));
