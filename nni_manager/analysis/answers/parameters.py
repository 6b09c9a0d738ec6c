"""Parameters and results: ``effect`` of one parameter, ``pair`` of two, ``parallel``, ``importance``.

``parallel``: parallel coordinates of the best trials and a sample of the others; ``importance``: the share of each
parameter in explaining which trials are among the best.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nni_manager.analysis import selection
from nni_manager.analysis.answers import columns
from nni_manager.analysis.answers.columns import Axis
from nni_manager.analysis.columns.column import Floats, Integers
from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.json_text import numbers, plain, short
from nni_manager.analysis.selection import Asked, Drawn, drawn, flags, sample, selected
from nni_manager.domain.errors import InvalidInput

#: Number of parameters if none is named.
_MOST_PARAMETERS = 6
_MOST_POINTS = 200
#: Warning filters are global: the first thread to finish would enable the warnings of the others.
_ONE_AT_A_TIME = threading.Lock()
#: Quantiles of a bin.
_SHARES = (0.1, 0.5, 0.9)


def effect(asked: Asked) -> dict[str, Any]:
    trials, query = asked.trials, asked.query
    found, known = drawn(asked, provisional=False), current(asked)
    names = [query.parameter] if query.parameter else columns.names(trials, known.values, _MOST_PARAMETERS)
    shares = dict(known.values)
    axes, best = [columns.axis(trials, "parameter", name) for name in names], _best(asked, found)
    told = [_parameter(asked, axis, found, best, shares.get(axis.name)) for axis in axes]
    return {"parameters": told, "importanceState": known.state, **found.counts(len(found.positions))}


def _parameter(asked: Asked, axis: Axis, found: Drawn, best: Integers, share: float | None) -> dict[str, Any]:
    kind = "number" if axis.choices is None else "choice"
    head = {"name": axis.name, "kind": kind, "log": axis.log, **axis.places(), "importance": share}
    return {**head, "bins": _bins(asked, axis, found), "points": _points(asked, axis, found, best)}


def _bins(asked: Asked, axis: Axis, found: Drawn) -> list[dict[str, Any]]:
    """The bins that are not empty."""
    limits, is_better_high = axis.bin_limits(), selection.maximizes(asked.trials, asked.query)
    told = []
    for bin, positions in groups(axis.bin[found.positions], found.positions):
        values = np.sort(found.values[positions])
        low, middle, high = np.interp(np.multiply(_SHARES, len(values) - 1), np.arange(len(values)), values)
        best = float(values[-1 if is_better_high else 0])
        quantiles = {"median": short(float(middle)), "p10": short(float(low)), "p90": short(float(high))}
        told.append({"place": int(bin), **limits[bin], "count": len(values), **quantiles, "best": short(best)})
    return told


def _best(asked: Asked, found: Drawn) -> Integers:
    """The best hundredth of the trials, at least the top ones, and the selected ones that have a value."""
    trials, query = asked.trials, asked.query
    order = selection.ranks(trials, query).order
    chosen = order[flags(trials, found.positions)[order]]
    best = chosen[: min(_MOST_POINTS, max(query.top, len(chosen) // 100))]
    return np.flatnonzero(flags(trials, best, selected(asked)) & np.isfinite(found.values))


def _points(asked: Asked, axis: Axis, found: Drawn, best: Integers) -> dict[str, Any]:
    """The points of the best trials that have the parameter."""
    trials, drawn = asked.trials, best[np.isfinite(axis.values[best])]
    return {
        "number": plain(trials["number"][drawn]),
        "x": numbers(axis.values[drawn]),
        "value": numbers(found.values[drawn]),
    }


def pair(asked: Asked) -> dict[str, Any]:
    """The non-empty cells; ``rank`` is the rank of their median among the cells, from 0 (worst) to 1."""
    found = drawn(asked, provisional=False)
    first, second = _axes(asked)
    i, j = first.bin[found.positions], second.bin[found.positions]
    both = (i >= 0) & (j >= 0)
    places = i[both] * max(1, second.bins) + j[both]
    cells = [
        _cell(asked, found.values, cell, positions, second.bins)
        for cell, positions in groups(places, found.positions[both])
    ]
    _rank(asked, cells)
    a, b = (
        {**axis.described(), "edges": numbers(axis.edges) if axis.choices is None else None} for axis in (first, second)
    )
    return {"a": a, "b": b, "cells": cells, **found.counts(int(both.sum()))}


def _axes(asked: Asked) -> tuple[Axis, Axis]:
    """The named parameters; by default, the most important ones."""
    trials, query = asked.trials, asked.query
    known = columns.names(trials, current(asked).values, 3) if not (query.a and query.b) else []
    free = [name for name in known if name not in (query.a, query.b)]
    names = [given or (free.pop(0) if free else "") for given in (query.a, query.b)]
    if "" in names:
        raise InvalidInput(f"{'ab'[names.index('')]}: is missing, because there are fewer than two parameters; give it")
    return columns.axis(trials, "a", names[0]), columns.axis(trials, "b", names[1])


def _cell(asked: Asked, values: Any, cell: int, positions: Integers, width: int) -> dict[str, Any]:
    own = values[positions]
    at = int(np.argmax(own) if selection.maximizes(asked.trials, asked.query) else np.argmin(own))
    return {
        "i": cell // max(1, width),
        "j": cell % max(1, width),
        "count": len(own),
        "median": short(float(np.median(own))),
        "best": short(float(own[at])),
        "number": int(asked.trials["number"][positions[at]]),
    }


def _rank(asked: Asked, cells: list[dict[str, Any]]) -> None:
    order = sorted(
        cells, key=lambda cell: float(cell["median"]), reverse=not selection.maximizes(asked.trials, asked.query)
    )
    for place, cell in enumerate(order):
        cell["rank"] = round(place / max(1, len(cells) - 1), 4)


_MOST_AXES = 12
MOST_LINES = 1500


def parallel(asked: Asked) -> dict[str, Any]:
    trials, query = asked.trials, asked.query
    found = drawn(asked, provisional=False)
    ranks = selection.ranks(trials, query)
    known = current(asked)
    names = list(query.axes) or columns.names(trials, known.values, _MOST_AXES - 1)
    shown = [columns.axis(trials, "axes", name) for name in names[: _MOST_AXES - 1]]
    shown.append(columns.result_axis(np.where(selection.comparable(trials, query.key), found.values, np.nan)))
    always = flags(trials, ranks.order[: query.top], selected(asked))
    lines = sample(trials, found.positions, MOST_LINES, always)
    lines = lines[np.argsort(-ranks.rank[lines], kind="stable")]
    return {
        "axes": [axis.described() for axis in shown],
        "lines": {
            "number": plain(trials["number"][lines]),
            "id": [trials.ids[position] for position in lines.tolist()],
            "score": [round(score, 4) for score in ranks.score[lines].tolist()],
            "values": [numbers(axis.values[lines]) for axis in shown],
        },
        "histograms": [_histogram(axis, found.positions) for axis in shown],
        "importanceState": known.state,
        **found.counts(len(lines)),
    }


def _histogram(axis: Axis, positions: Integers) -> dict[str, Any]:
    bins = axis.bin[positions]
    return {"axis": axis.name, "counts": plain(np.bincount(bins[bins >= 0], minlength=axis.bins))}


def importance_of_each(asked: Asked) -> dict[str, Any]:
    found = current(asked)
    return {
        "state": found.state,
        "method": METHOD,
        "sample": found.sample,
        "of": found.completed,
        "sentence": found.sentence or _sentence(found),
        "importances": [{"name": name, "value": short(share)} for name, share in found.values],
    }


def _sentence(found: Importance) -> str:
    which = (
        f"{found.sample} of {found.completed} trials" if found.sample < found.completed else f"{found.sample} trials"
    )
    return f"{METHOD} of {which} with a result, without parameters that some of them lack"


def groups(bins: NDArray[Any], positions: Integers) -> Iterator[tuple[int, Integers]]:
    """(bin, its positions) of the bins that are not empty, in their order; bin -1 is none."""
    order = np.argsort(bins, kind="stable")
    ordered = bins[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    for start, end in pairwise([*starts.tolist(), len(ordered)]):
        if ordered[start] >= 0:
            yield int(ordered[start]), positions[order[start:end]]


log = logging.getLogger(__name__)

METHOD = "PED-ANOVA"
MOST_TRIALS = 5000
#: Minimum number of trials with a result.
LEAST_TRIALS = 10
#: Growth of the number of trials with a result that triggers another computation.
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
    #: Why it is unavailable; empty: available.
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
    """The importance, by PED-ANOVA, for the query's key and direction; starts a computation if needed.

    It is computed in a thread and kept until clearly more trials have ended. optuna takes seconds for some thousand
    trials, so queries that only order parameters by importance do not wait.
    """
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
        found.sentence = f"Importance needs at least {LEAST_TRIALS} trials with a result; there are {len(chosen)}."
    elif not parameters:
        found.sentence = "No parameter differs between the trials."
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
    """Compute the importances, in a separate thread."""
    try:
        with _ONE_AT_A_TIME:
            shares = _evaluate(parameters, results, is_better_high)
        found.values = sorted(shares.items(), key=lambda share: -share[1])
    except Exception as error:  # any error of optuna with unusual values
        log.debug("importance", exc_info=True)
        found.values, found.sentence = [], f"Importance cannot be computed for these trials ({error})."
    found.is_done = True


def _evaluate(parameters: list[_Parameter], results: Floats, is_better_high: bool) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about experimental features of optuna
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
