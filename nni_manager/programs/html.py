"""An experiment in a notebook: a few facts, and the best result so far as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from nni_manager.client.formats import best_label, compact, number
from nni_manager.domain.objectives import Goals
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
    drawing = best_so_far.drawing(_results(state, trials), maximize=state.get("optimizeMode") == "maximize")
    return "<div>" + "".join(f"<div>{fact}</div>" for fact in facts) + drawing + "</div>"


def _results(state: State, trials: Trials) -> Iterator[best_so_far.Result]:
    """The results of trials; with objectives, the numbers of the first one."""
    objectives = state.get("objectives") or {}
    if not objectives:
        yield from ((one.number, one.value, True) for one in trials)
        return
    goals = Goals.of(objectives, state.get("config", {}).get("constraints") or {})
    for one in trials:
        worth = goals.judge(one.result)
        if worth is not None:
            yield one.number, next(iter(goals.values(worth.losses).values())), worth.is_feasible
