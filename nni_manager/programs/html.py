"""An experiment in a notebook: some facts, and the best result so far as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from nni_manager.client.formats import best_label, compact, number
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.objectives import Goals
from nni_manager.programs import progress
from nni_manager.programs.progress import State
from nni_manager.web import best_so_far

if TYPE_CHECKING:
    from nni_manager.programs.records import Trials


def experiment(state: State, trials: Trials, page: str = "") -> str:
    """The HTML of an experiment's current state. `page`: http or https address of its page, or empty."""
    facts = [
        f"<b>Experiment {_shown(state['id'])}</b> {_shown(state.get('name') or '')}",
        f"{_shown(state['status'])}, {_shown(progress.line(progress.read(state)))}",
    ]
    if page:
        facts.append(f'Page: <a href="{_shown(page)}" target="_blank" rel="noopener">{_shown(page)}</a>')
    elif state["status"] == ExperimentStatus.STOPPED:
        facts.append(f"Page: closed; <code>nnictl view {_shown(state['id'])}</code> opens it")
    if state["hold"]:
        facts.append(f"On hold: {_shown(state['hold']['sentence'])}")
    if best := state["best"]:
        label, value = best_label(state).removeprefix("b"), number(best["value"])
        facts.append(f"B{_shown(label)} {_shown(value)}: <code>{_shown(compact(best['parameters']))}</code>")
    drawing = best_so_far.drawing(_results(state, trials), maximize=state.get("optimizeMode") == "maximize")
    return "<div>" + "".join(f"<div>{fact}</div>" for fact in facts) + drawing + "</div>"


def _shown(value: object) -> str:
    """An untrusted value as text in HTML."""
    return escape(str(value))


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
