// Draws the charts of a report from its own data.

import * as curves from "../charts/curves.js";
import * as distribution from "../charts/distribution.js";
import * as effect from "../charts/effect.js";
import * as importance from "../charts/importance.js";
import * as pair from "../charts/pair.js";
import * as parallel from "../charts/parallel.js";
import * as pareto from "../charts/pareto.js";
import * as results from "../charts/results.js";
import * as timeline from "../charts/timeline.js";
import { plotly } from "../charts/plot.js";
import { plotlyAddress } from "./answers.js";
import { state } from "./state.js";

const MODULES = { curves, distribution, effect, importance, pair, parallel, pareto, results, timeline };

const address = await plotlyAddress();
for (const figure of document.querySelectorAll("[data-chart]")) {
  figure.dataset.plotly = address;
  try {
    await MODULES[figure.dataset.chart].mount(figure, { experiment: figure.dataset.experiment, state });
  } catch (error) {
    figure.append(`This chart could not be drawn: ${error.message}.`);
  }
}
await plotly({ dataset: { plotly: address } }).catch(() => {}); // printing cannot wait for it; charts show errors
document.documentElement.dataset.drawn = "yes";
