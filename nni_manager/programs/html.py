"""An experiment in a notebook: a few facts, and the best result so far as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from nni_manager.client.formats import best_label, compact, number
from nni_manager.programs import progress
from nni_manager.programs.progress import State
from nni_manager.web import best_so_far

if TYPE_CHECKING:
    from nni_manager.programs.records import Trials


def experiment(state: State, trials: Trials) -> str:
    """The HTML of an experiment as it is now."""
    facts = [
        f"<b>Experiment {escape(state['id'])}</b> {escape(str(state.get('name') or ''))}",
        f"{escape(state['status'])}, {escape(progress.line(progress.read(state)))}",
    ]
    if state["hold"]:
        facts.append(f"On hold: {escape(state['hold']['sentence'])}")
    if best := state["best"]:
        label = escape(best_label(state).removeprefix("b"))
        facts.append(f"B{label} {number(best['value'])}: <code>{escape(compact(best['parameters']))}</code>")
    results = ((one.number, one.value) for one in trials)
    drawing = best_so_far.drawing(results, maximize=state.get("optimizeMode") == "maximize")
    return "<div>" + "".join(f"<div>{fact}</div>" for fact in facts) + drawing + "</div>"
