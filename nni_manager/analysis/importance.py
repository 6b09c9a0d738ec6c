"""Importance of parameters by PED-ANOVA, computed in a thread and kept until clearly more trials have ended.

optuna takes seconds for some thousand trials, so questions that only order parameters by importance do not wait for it.
"""

from __future__ import annotations

import logging
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, Integers
from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.drawn import sample
from nni_manager.analysis.selection import Asked

log = logging.getLogger(__name__)

METHOD = "PED-ANOVA"
MOST_TRIALS = 5000
#: Trials with a result below which nothing is computed.
LEAST_TRIALS = 10
#: Growth of the number of trials with a result after which it is computed again.
_GROWTH = 1.05


@dataclass(slots=True)
class Importance:
    """A computation; `values` are those of an earlier one until it is done."""

    #: Trials with a result when it began.
    completed: int
    sample: int
    #: (name, share), the most important first.
    values: list[tuple[str, float]] = field(default_factory=list)
    is_done: bool = False
    #: Why there is none; empty: there is.
    sentence: str = ""

    @property
    def state(self) -> str:
        """``ready``, ``computing`` or ``unavailable``."""
        return "computing" if not self.is_done else "unavailable" if self.sentence else "ready"


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    #: Per trial of the sample: a number, or the index of a choice.
    values: Floats
    log: bool
    is_choice: bool


def current(asked: Asked) -> Importance:
    """The importance for the query's key and direction; a computation is begun where it is missing or outdated."""
    trials, query = asked.trials, asked.query
    order = selection.ranks(trials, query).order
    known: dict[Any, Importance] = trials.kept.setdefault("importance", {})
    name = (query.key, selection.maximizes(trials, query))
    found = known.get(name)
    if found is None or _is_outdated(found, len(order)):
        found = known[name] = _begin(asked, np.sort(order), found)
    return found


def _is_outdated(found: Importance, completed: int) -> bool:
    has_grown = completed > found.completed and completed >= found.completed * _GROWTH
    return found.is_done and (completed < found.completed or has_grown)


def _begin(asked: Asked, positions: Integers, before: Importance | None) -> Importance:
    trials = asked.trials
    chosen = sample(trials, positions, MOST_TRIALS)
    found = Importance(len(positions), len(chosen), before.values if before else [])
    parameters = _parameters(trials, chosen)
    if len(chosen) < LEAST_TRIALS:
        found.sentence = f"importance needs at least {LEAST_TRIALS} trials with a result; there are {len(chosen)}"
    elif not parameters:
        found.sentence = "no parameter differs between the trials"
    if found.sentence:
        found.values, found.is_done = [], True
        return found
    results = selection.results(trials, asked.query.key)[chosen]
    is_better_high = selection.maximizes(trials, asked.query)
    work = (found, parameters, results, is_better_high)
    threading.Thread(target=_compute, args=work, name="importance", daemon=True).start()
    return found


def _parameters(trials: TrialSet, chosen: Integers) -> list[_Parameter]:
    """The parameters that every trial of the sample has, and that differ."""
    found = []
    for name, column in trials.parameters.columns.items():
        space = trials.space.get(name)
        is_choice = column.has_texts or (space is not None and space.choices is not None)
        values = (column.categories().codes if is_choice else column.numbers)[chosen].astype(np.float64)
        has_all = bool(np.isfinite(values).all()) and not (is_choice and bool((values < 0).any()))
        if len(values) and has_all and values.min() < values.max():
            is_log = space is not None and space.log and bool(values.min() > 0)
            found.append(_Parameter(name, values, is_log, is_choice))
    return found


def _compute(found: Importance, parameters: list[_Parameter], results: Floats, is_better_high: bool) -> None:
    """Fills in the importances; runs in a thread of its own."""
    try:
        shares = _evaluate(parameters, results, is_better_high)
        found.values = sorted(shares.items(), key=lambda share: -share[1])
    except Exception as error:  # whatever optuna makes of odd values
        log.debug("importance", exc_info=True)
        found.values, found.sentence = [], f"it cannot be computed of these trials ({error})"
    found.is_done = True


def _evaluate(parameters: list[_Parameter], results: Floats, is_better_high: bool) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is experimental in optuna
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            direction="maximize" if is_better_high else "minimize", sampler=optuna.samplers.RandomSampler(seed=0)
        )
        distributions = {one.name: _distribution(optuna, one) for one in parameters}
        columns = {one.name: _values(one) for one in parameters}
        study.add_trials(
            [
                optuna.trial.create_trial(
                    params={name: values[row] for name, values in columns.items()},
                    distributions=distributions,
                    value=value,
                )
                for row, value in enumerate(results.tolist())
            ]
        )
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(value) for name, value in found.items()}


def _distribution(optuna: Any, one: _Parameter) -> Any:
    if one.is_choice:
        return optuna.distributions.CategoricalDistribution([int(code) for code in np.unique(one.values)])
    return optuna.distributions.FloatDistribution(float(one.values.min()), float(one.values.max()), log=one.log)


def _values(one: _Parameter) -> list[Any]:
    values = one.values.tolist()
    return [int(value) for value in values] if one.is_choice else values
