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

async function mount(element) {
  const name = element.dataset.chart;
  if (!MODULES.has(name)) return;
  try {
    const chart = await import(`./${name}.js`);
    chart.mount(element, { experiment: element.dataset.experiment, state });
  } catch (error) {
    element.append(`This chart could not be loaded: ${error.message}. A reload of the page may help.`);
  }
}

// Charts of parts that are put in place later are mounted, too.
export function mountAll(root) {
  for (const element of root.querySelectorAll("[data-chart]:not([data-mounted])")) {
    element.dataset.mounted = "yes";
    seen.observe(element);
  }
}

mountAll(document);
new MutationObserver((changes) => {
  for (const { target, addedNodes } of changes) if (addedNodes.length) mountAll(target);
}).observe(document.body, { childList: true, subtree: true });
