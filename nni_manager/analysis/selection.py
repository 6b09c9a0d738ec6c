"""The trials that a query selects, their results, order and ranks; and those that a chart draws."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nni_manager.analysis.columns.column import Floats, Integers, Mask, ValueColumn
from nni_manager.analysis.columns.trial_set import STATUSES, TrialSet
from nni_manager.analysis.query import DEFAULT_KEY, Query
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.metrics import OptimizeMode
from nni_manager.domain.objectives import Constraint
from nni_manager.domain.trial_status import OPEN_STATUSES, TrialStatus

SUCCEEDED = STATUSES.index(TrialStatus.SUCCEEDED)
OPEN = [STATUSES.index(status) for status in OPEN_STATUSES]


def maximizes(trials: TrialSet, query: Query) -> bool:
    return (query.direction or trials.direction_of(query.key)) is OptimizeMode.MAXIMIZE


def results(trials: TrialSet, key: str) -> Floats:
    """Final results of all trials; NaN without a number."""
    if key == DEFAULT_KEY:
        return trials["final"]
    if key not in trials.metrics.columns and trials.goals is not None and key in trials.goals.names:
        return np.full(len(trials), np.nan)  # no trial has reported it yet
    return _metric(trials, "key", key).numbers


def comparable(trials: TrialSet, key: str) -> Mask:
    """Trials with a result that can be the best: succeeded, and finite."""
    found: Mask = (trials["status"] == SUCCEEDED) & np.isfinite(results(trials, key))
    return found


def violation(trials: TrialSet) -> Floats:
    """The violation of constraints by each trial; 0: all satisfied, or no constraints."""
    return trials.derive("violation", partial(_violation, trials))


def _violation(trials: TrialSet) -> Floats:
    found = np.zeros(len(trials))
    for name, limit in (trials.goals.constraints if trials.goals is not None else {}).items():
        found += _beyond(limit, results(trials, name))
    return found


def _beyond(limit: Constraint, values: Floats) -> Floats:
    """`Constraint.violation` of many values; NaN: missing."""
    beyond = values - limit.bound if limit.operator.startswith("<") else limit.bound - values
    least = 0.0 if "=" in limit.operator else sys.float_info.min
    found: Floats = np.where(beyond == 0, least, np.maximum(beyond, 0.0))
    return np.where(np.isnan(values), np.inf, found)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Comparable trials from the best to the worst.

    Trials that satisfy all constraints come first. Of equal results, the earlier trial is better.
    """

    #: Positions, the best first.
    order: Integers
    #: Of each trial, from 1; 0: it is not comparable.
    rank: Integers
    #: Of each trial: 1 the best result, 0 the worst, equal ones the same; NaN: not comparable.
    score: Floats


def ranks(trials: TrialSet, query: Query) -> Ranks:
    """The ranks within the whole experiment."""
    name = ("ranks", query.key, maximizes(trials, query))
    return trials.derive(name, partial(_ranks, trials, query))


def _ranks(trials: TrialSet, query: Query) -> Ranks:
    values = results(trials, query.key)
    positions = np.flatnonzero(comparable(trials, query.key))
    signed = -values[positions] if maximizes(trials, query) else values[positions]
    is_infeasible = violation(trials)[positions] > 0
    sorting = np.lexsort((signed, is_infeasible))
    order, ascending, groups = positions[sorting], signed[sorting], is_infeasible[sorting]
    rank, score = np.zeros(len(trials), np.int64), np.full(len(trials), np.nan)
    rank[order] = np.arange(1, len(order) + 1)
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (ascending[1:] != ascending[:-1]) | (groups[1:] != groups[:-1])
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))  # of equal ones
    score[order] = 1 - first / max(1, first.max(initial=0))
    return Ranks(order, rank, score)


def chosen(trials: TrialSet, query: Query) -> Mask:
    """The trials that match the query's filter. Raises InvalidInput for a parameter or key that no trial has."""
    found = np.ones(len(trials), np.bool_)
    if query.status:
        found &= np.isin(trials["status"], [STATUSES.index(status) for status in query.status])
    if query.failure:
        codes = [code for code, known in enumerate(trials.failure_hashes) if known == query.failure]
        found &= np.isin(trials["failure"], codes)
    for name, condition in query.parameters:
        column = parameter(trials, f"p.{name}", name)
        found &= (
            column.matching(condition.choices)
            if condition.choices
            else in_range(column.numbers, condition.low, condition.high)
        )
    for key, condition in query.metrics:
        values = trials["final"] if key == DEFAULT_KEY else _metric(trials, f"m.{key}", key).numbers
        found &= in_range(values, condition.low, condition.high)
    return found & _with_text(trials, query.q.strip()) if query.q.strip() else found


def parameter(trials: TrialSet, word: str, name: str) -> ValueColumn:
    """The column of a parameter. Raises InvalidInput, with the field `word`, if there is none."""
    found = trials.parameters.columns.get(name)
    if found is None and name in trials.space:
        found = ValueColumn()  # no trial has it yet
        found.resize(len(trials))
    if found is None:
        raise InvalidInput(f"{word}: no trial has a parameter {name!r}{_offered(trials.parameters.columns)}")
    return found


def _metric(trials: TrialSet, word: str, key: str) -> ValueColumn:
    found = trials.metrics.columns.get(key)
    if found is None:
        raise InvalidInput(f"{word}: no result has a key {key!r}{_offered(trials.metrics.columns)}")
    return found


def _offered(names: dict[str, Any]) -> str:
    return f"; use {', '.join(list(names)[:20])}" if names else ""


def in_range(values: Floats, low: float | None, high: float | None) -> Mask:
    """Which values are in a range with inclusive ends; None: unbounded. NaN is never in a range."""
    found: Mask = ~np.isnan(values)
    if low is not None:
        found &= values >= low
    if high is not None:
        found &= values <= high
    return found


def _with_text(trials: TrialSet, text: str) -> Mask:
    found = np.zeros(len(trials), np.bool_)
    lower = text.lower()
    by_id = [position for position, id in enumerate(trials.ids) if id.lower().startswith(lower)]
    found[by_id] = True
    found[[position for position, reason in trials.reasons.items() if lower in reason.lower()]] = True
    if text.isascii() and text.isdecimal() and len(text) < 16 and (at := trials.position(int(text))) is not None:
        found[at] = True
    return found


def in_order(trials: TrialSet, query: Query, mask: Mask, now_ms: int, places: Callable[[], list[str]]) -> Integers:
    """The selected positions in the query's order; those without a value, or with NaN, are always last."""
    column = query.sort.removeprefix("-")
    descending = query.sort.startswith("-")
    positions = np.flatnonzero(mask)
    values = _sort_values(trials, query, column, now_ms, places)[positions]
    missing = np.isnan(values)
    order = np.argsort(-values if descending else values, kind="stable")  # NaN is last
    return np.concatenate((positions[order[: len(order) - int(missing.sum())]], positions[missing]))


def _sort_values(
    trials: TrialSet, query: Query, column: str, now_ms: int, places: Callable[[], list[str]]
) -> NDArray[np.float64]:
    if column == "id":
        return _alphabetical(trials.ids)
    if column == "status":
        return _alphabetical([STATUSES[code] for code in trials["status"].tolist()])
    if column == "place":
        return _alphabetical(places())
    if column == "duration":
        return duration(trials, now_ms)
    if column.startswith("p."):
        return _sortable(parameter(trials, "sort", column[2:]))
    if column == "result":
        return results(trials, query.key)
    if column.startswith("m."):
        return trials["final"] if column == f"m.{DEFAULT_KEY}" else _metric(trials, "sort", column[2:]).numbers
    name = {"latest": "last"}.get(column, column)
    return trials[name].astype(np.float64)


def duration(trials: TrialSet, now_ms: int) -> Floats:
    """Milliseconds from start to end, or to now for a running trial; NaN: not started."""
    ended = trials["ended"].copy()
    is_open = np.isin(trials["status"], OPEN)
    ended[is_open] = now_ms
    found: Floats = np.maximum(ended - trials["started"], 0)
    return found


def _sortable(column: ValueColumn) -> Floats:
    """Numbers by size, then other values by their text."""
    if not column.has_texts:
        return column.numbers
    labels, codes = column.categories()
    texts = [
        label if isinstance(label, int | float) and not isinstance(label, bool) else str(label) for label in labels
    ]
    order = sorted(range(len(texts)), key=lambda at: (isinstance(texts[at], str), texts[at]))
    place = np.full(len(texts) + 1, np.nan)
    place[order] = np.arange(len(order))
    found: Floats = place[codes]  # -1 is the last, NaN
    return found


def _alphabetical(texts: list[Any]) -> Floats:
    """The place of each text among all; NaN for an empty one."""
    places = {text: place for place, text in enumerate(sorted(set(texts)))}
    return np.array([places[text] if text else np.nan for text in texts], np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query about an experiment; `connection` is in the transaction in which `trials` were read."""

    trials: TrialSet
    query: Query
    connection: sqlite3.Connection
    now_ms: int


#: Computes the fields of an answer. ``computing`` in the field ``state`` means that the answer will change.
Answerer = Callable[[Asked], dict[str, Any]]


_PROVISIONAL = [
    STATUSES.index(status) for status in (TrialStatus.RUNNING, TrialStatus.UNKNOWN, TrialStatus.EARLY_STOPPED)
]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The trials that a chart draws: those with a finite value that match filter and clip."""

    #: By position: a final result; of running and early-stopped trials without one, the latest value.
    values: Floats
    #: The trials, in the order of their numbers.
    positions: Integers
    #: Number of trials that match the filter.
    of: int
    #: Number of those whose final result is not a finite number.
    not_numbers: int
    #: Number of trials hidden as outliers.
    clipped: int

    def counts(self, shown: int) -> dict[str, int]:
        """The fields with the numbers of trials in an answer."""
        return {"shown": shown, "of": self.of, "notNumbers": self.not_numbers, "clipped": self.clipped}


def drawn(asked: Asked, *, provisional: bool) -> Drawn:
    """The trials to draw. `provisional`: include those without a final result; else only comparable ones."""
    trials, query = asked.trials, asked.query
    mask = chosen(trials, query)
    values, usable = results(trials, query.key), comparable(trials, query.key)
    if provisional and query.key == DEFAULT_KEY:
        latest = np.isin(trials["status"], _PROVISIONAL) & ~trials["has_final"]
        values = np.where(latest, trials["last"], values)
        usable = usable | (np.isin(trials["status"], _PROVISIONAL) & np.isfinite(values))
    ended = (trials["status"] == SUCCEEDED) & trials["has_final"]
    positions = np.flatnonzero(mask & usable)
    kept = _unclipped(values[positions], query.clip, is_better_high=maximizes(trials, query))
    kept |= flags(trials, selected(asked))[positions]
    return Drawn(values, positions[kept], int(mask.sum()), int((mask & ended & ~usable).sum()), int((~kept).sum()))


#: Odd, with about the same number of ones and zeros in random order, so that neighbours are far apart.
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


def seeds(trials: TrialSet) -> Integers:
    """A number per trial that depends only on its own number: the trials with the lowest form a stable sample."""
    mixed = trials["number"].astype(np.uint64)
    for factor in _FACTORS:
        mixed = (mixed ^ (mixed >> np.uint64(29))) * factor  # wraps around at 64 bits
    found: Integers = (mixed >> np.uint64(32)).astype(np.int64)
    return found


def sample(trials: TrialSet, positions: Integers, most: int, always: Mask | None = None) -> Integers:
    """At most `most` of the positions, in their order; those that are in `always` first."""
    if len(positions) <= most:
        return positions
    rank = seeds(trials)[positions].astype(np.float64)
    if always is not None:
        rank[always[positions]] = -1
    found: Integers = positions[np.sort(np.argpartition(rank, most)[:most])]
    return found


def selected(asked: Asked) -> list[int]:
    """Positions of existing selected trials."""
    found = (asked.trials.position(number) for number in asked.query.selected)
    return [position for position in found if position is not None]


def flags(trials: TrialSet, *positions: Any) -> Mask:
    """A mask of all trials that is set at these positions."""
    found = np.zeros(len(trials), np.bool_)
    for some in positions:
        found[np.asarray(some, np.int64)] = True
    return found


def _unclipped(values: Floats, reach: float | None, *, is_better_high: bool) -> Mask:
    """Which values are not outliers; all without a reach.

    Values that are much better than the others are never outliers: the search aims at them.
    """
    if reach is None or len(values) < 4:
        return np.ones(len(values), np.bool_)
    low, high = np.quantile(values, (0.25, 0.75))
    far = reach * (high - low)
    kept: Mask = values >= low - far if is_better_high else values <= high + far
    return kept
