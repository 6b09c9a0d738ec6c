"""``failures``: groups of failed trials with the same failure, and the parameter ranges of each group."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.columns.column import Floats, Integers, Mask, ValueColumn
from nni_manager.analysis.columns.trial_set import TrialSet
from nni_manager.analysis.json_text import short
from nni_manager.analysis.selection import Asked, sample
from nni_manager.store.experiment import trial_columns

MOST_GROUPS = 50
#: Number of groups, the largest ones, whose parameter ranges are searched.
_WITH_RANGES = 12


def answer(asked: Asked) -> dict[str, Any]:
    trials = asked.trials
    failed = selection.chosen(trials, asked.query) & (trials["failure"] >= 0)
    codes, counts = np.unique(trials["failure"][failed], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_GROUPS]
    groups = [_group(asked, int(code), failed) for code in codes[order]]
    for group, code in list(zip(groups, codes[order].tolist(), strict=True))[:_WITH_RANGES]:
        group["ranges"] = failing_ranges(trials, failed & (trials["failure"] == code))
    return {"failed": int(failed.sum()), "of": len(trials), "kinds": len(codes), "groups": groups}


def _group(asked: Asked, code: int, failed: Any) -> dict[str, Any]:
    trials = asked.trials
    positions = np.flatnonzero(failed & (trials["failure"] == code))
    positions = positions[np.argsort(trials["ended"][positions], kind="stable")]
    newest = int(positions[-1])
    attempt, cause, exit_code, signal, line = trial_columns.failure_evidence(
        asked.connection, asked.trials.ids[newest]
    ) or (1, "", None, None, "")
    return {
        "failure": trials.failure_hashes[code],
        "key": trials.failures[code],
        "sentence": trials.reasons.get(newest, ""),
        "cause": cause or trials.failures[code].partition(":")[0].partition(",")[0],
        "exitCode": exit_code,
        "signal": signal,
        "line": line,
        "count": len(positions),
        "first": _moment(asked, positions, 0),
        "last": _moment(asked, positions, -1),
        "ranges": [],
        "example": {"number": int(trials["number"][newest]), "id": trials.ids[newest], "attempt": attempt},
    }


def _moment(asked: Asked, positions: Integers, at: int) -> dict[str, Any]:
    trials, position = asked.trials, int(positions[at])
    ended = trials["ended"][position]
    moment = None if np.isnan(ended) else int(ended)
    return {"number": int(trials["number"][position]), "id": trials.ids[position], "ms": moment}


#: Share of failed trials in a range minus the share of others below which a range is ignored.
_LEAST = 0.4
_MOST_RANGES = 3
_MOST_CHOICES = 5
_SAMPLE = 4000
#: Minimum number of trials of each kind, below which a range may be random.
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class _Range:
    #: Share of failed trials in it minus the share of others.
    strength: float
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] | None = None


def failing_ranges(trials: TrialSet, failed: Mask) -> list[dict[str, Any]]:
    """The ranges of parameters that separate the trials in `failed` best from the other finished trials.

    Each parameter has at most one range. Ranges are searched in a sample, and then counted in all trials.
    """
    ended = ~np.isin(trials["status"], selection.OPEN)
    groups = np.flatnonzero(failed), np.flatnonzero(ended & ~failed)
    if min(map(len, groups)) < _FEWEST:
        return []
    inside, outside = (sample(trials, group, _SAMPLE) for group in groups)
    found = []
    for name, column in trials.parameters.columns.items():
        range = (
            _of_choices(column, inside, outside) if _is_choice(trials, name) else _of_numbers(column, inside, outside)
        )
        if range is not None and range.strength >= _LEAST:
            found.append((range.strength, _told(name, column, range, failed, ended)))
    found.sort(key=lambda one: -one[0])
    return [told for _, told in found[:_MOST_RANGES]]


def _is_choice(trials: TrialSet, name: str) -> bool:
    space = trials.space.get(name)
    return trials.parameters.columns[name].has_texts or (space is not None and space.choices is not None)


def _of_numbers(column: ValueColumn, inside: Integers, outside: Integers) -> _Range | None:
    """The best of the ranges ``≥ low``, ``≤ high`` and ``low to high``, if there is a boundary."""
    failing, other = (_finite(column.numbers[group]) for group in (inside, outside))
    if len(failing) < _FEWEST or len(other) < _FEWEST:
        return None
    edges = np.unique(np.concatenate((failing, other)))
    below, others_below = (
        np.searchsorted(np.sort(values), edges, side="left") / len(values) for values in (failing, other)
    )
    upto, others_upto = (
        np.searchsorted(np.sort(values), edges, side="right") / len(values) for values in (failing, other)
    )
    from_edge, to_edge = others_below - below, upto - others_upto
    least, most = int(np.argmax(from_edge)), int(np.argmax(to_edge))
    ranges = [
        _Range(float(from_edge[least]), low=float(edges[least])),
        _Range(float(to_edge[most]), high=float(edges[most])),
    ]
    low, high = np.quantile(failing, (0.05, 0.95), method="nearest")
    share = _share(failing, low, high) - _share(other, low, high)
    ranges.append(_Range(share - 0.1, low=float(low), high=float(high)))  # the simpler one, if both are equally good
    return max(ranges, key=lambda range: range.strength)


def _of_choices(column: ValueColumn, inside: Integers, outside: Integers) -> _Range | None:
    """The choices that are more frequent among failed trials."""
    labels, codes = column.categories()
    shares = [np.bincount(codes[group] + 1, minlength=len(labels) + 1)[1:] / len(group) for group in (inside, outside)]
    more = shares[0] - shares[1]
    chosen = [code for code in np.argsort(-more, kind="stable")[:_MOST_CHOICES].tolist() if more[code] > 0]
    return _Range(float(more[chosen].sum()), choices=tuple(labels[code] for code in chosen)) if chosen else None


def _told(name: str, column: ValueColumn, range: _Range, failed: Mask, ended: Mask) -> dict[str, Any]:
    mask = _inside(column, range) & ended
    return {
        "parameter": name,
        "text": _text(name, range),
        "inside": int((mask & failed).sum()),
        "of": int(mask.sum()),
        "low": range.low,
        "high": range.high,
        "choices": None if range.choices is None else list(range.choices),
    }


def _inside(column: ValueColumn, range: _Range) -> Mask:
    if range.choices is not None:
        labels, codes = column.categories()
        wanted = [
            code for code, label in enumerate(labels) if any(label is one or label == one for one in range.choices)
        ]
        return np.isin(codes, wanted)
    return selection.in_range(column.numbers, range.low, range.high)


def _text(name: str, range: _Range) -> str:
    """The range as text: ``batch_size ≥ 512``."""
    if range.choices is not None:
        spelled = [one if isinstance(one, str) else json.dumps(one) for one in range.choices]
        return f"{name} = {' or '.join(spelled)}"
    low, high = (None if end is None else f"{short(end):.6g}" for end in (range.low, range.high))
    if low is not None and high is not None:
        return f"{low} ≤ {name} ≤ {high}"
    return f"{name} ≥ {low}" if low is not None else f"{name} ≤ {high}"


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _share(values: Floats, low: float, high: float) -> float:
    return float(((values >= low) & (values <= high)).mean())
