"""``trials``: a page of the table of trials; ``trial``: the place of a trial among the others."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.answers.curves import sparks
from nni_manager.analysis.answers.timeline import places
from nni_manager.analysis.columns.trial_set import failure_hash
from nni_manager.analysis.flattened import flat, parsed
from nni_manager.analysis.json_text import number, short
from nni_manager.analysis.query import DEFAULT_KEY
from nni_manager.analysis.selection import Asked
from nni_manager.domain.errors import InvalidInput, NotFound
from nni_manager.domain.text import web_link
from nni_manager.domain.trial import explanation
from nni_manager.domain.trial_status import OPEN_STATUSES, TrialStatus
from nni_manager.store.experiment import trial_columns

#: Maximum length of a value in a row; longer ones are cut.
_MOST_CHARACTERS = 300


def page(asked: Asked) -> dict[str, Any]:
    trials, query = asked.trials, asked.query
    mask = selection.chosen(trials, query)
    order = selection.in_order(trials, query, mask, asked.now_ms, lambda: places(asked))
    shown = order[(query.page - 1) * query.limit : query.page * query.limit]
    return {
        "total": len(trials),
        "matching": len(order),
        "page": query.page,
        "pages": max(1, -(-len(order) // query.limit)),
        "rows": rows(asked, shown.tolist()),
    }


def rows(asked: Asked, positions: list[int]) -> list[dict[str, Any]]:
    """The rows of the trials at `positions`, in that order."""
    ids = [asked.trials.ids[position] for position in positions]
    found = trial_columns.described(asked.connection, ids)
    drawn = sparks(asked, [id for id in ids if found[id]["status"] in (TrialStatus.RUNNING, TrialStatus.UNKNOWN)])
    ranks = selection.ranks(asked.trials, asked.query)
    made = []
    for position, id in zip(positions, ids, strict=True):
        row = _row(found[id], asked)
        row["spark"] = drawn.get(id, [])
        row["rank"] = int(ranks.rank[position]) or None
        row["position"] = _place(asked, position)
        made.append(row)
    return made


def _row(trial: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    metrics = _metrics(trial)
    key = asked.query.key
    return {
        "number": trial["sequenceId"],
        "id": trial["id"],
        "status": trial["status"],
        "reason": explanation(trial),
        "line": trial["lastWords"],
        "failure": failure_hash(trial["failureKey"] or ""),
        "parameters": {name: _bounded(value) for name, value in flat(trial["parameters"]).items()},
        "metrics": metrics,
        "result": metrics.get(key),
        "latest": trial["lastValue"] if trial["intermediates"] else None,
        "steps": trial["intermediates"],
        "startedMs": trial["startedMs"],
        "endedMs": trial["endedMs"],
        "durationMs": _duration(trial, asked.now_ms),
        "attempt": trial["attempt"],
        "place": trial["place"] or trial["service"] or "",
        "link": web_link(trial["link"]),
    }


def _metrics(trial: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the final result by key, including NaN and Infinity."""
    if trial["finalResult"] is None:
        return {}
    (result,) = parsed([trial["finalResult"]])
    entries = result if isinstance(result, dict) else {DEFAULT_KEY: result}
    return {key: value for key, value in entries.items() if type(value) in (int, float)}


def _duration(trial: Mapping[str, Any], now_ms: int) -> int | None:
    if trial["startedMs"] is None:
        return None
    ended = now_ms if trial["status"] in OPEN_STATUSES else trial["endedMs"]
    return None if ended is None else max(0, ended - trial["startedMs"])


def _bounded(value: Any) -> Any:
    """The value, or the beginning of a long text."""
    if type(value) in (int, float, bool, type(None)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _place(asked: Asked, position: int) -> float | None:
    """The place of the result between the worst (0) and the best (1), with outliers beyond the whiskers cut off."""
    trials, query = asked.trials, asked.query
    worst, best = _ends(asked)
    value = float(selection.results(trials, query.key)[position])
    if not math.isfinite(value) or not selection.ranks(trials, query).rank[position]:
        return None
    return 1.0 if best == worst else number(min(max((value - worst) / (best - worst), 0.0), 1.0))


def _ends(asked: Asked) -> tuple[float, float]:
    """The worst result except outliers, and the best one."""
    trials, query = asked.trials, asked.query
    name = ("ends", query.key, selection.maximizes(trials, query))
    return trials.derive(name, partial(_found_ends, asked))


def _found_ends(asked: Asked) -> tuple[float, float]:
    order = selection.ranks(asked.trials, asked.query).order
    if not len(order):
        return 0.0, 0.0
    values = selection.results(asked.trials, asked.query.key)[order]
    low, high = np.quantile(values, (0.25, 0.75))
    best, worst, reach = float(values[0]), float(values[-1]), 3 * float(high - low)
    if best < worst:
        return max(best, min(worst, float(high) + reach)), best
    return min(best, max(worst, float(low) - reach)), best


def one_trial(asked: Asked) -> dict[str, Any]:
    trials, number = asked.trials, asked.query.number
    if number is None:
        raise InvalidInput("number: is missing; give the number of a trial")
    position = trials.position(number)
    if position is None:
        raise NotFound(f"cannot find trial with the number {number}")
    ranks = selection.ranks(trials, asked.query)
    return {
        "number": number,
        "id": trials.ids[position],
        "rank": int(ranks.rank[position]) or None,
        "of": len(ranks.order),
        "percentiles": _percentiles(asked, position),
        **_neighbours(asked, position),
    }


def _percentiles(asked: Asked, position: int) -> dict[str, float]:
    """Parameter → share of the trials whose number is lower, equal ones counted half."""
    found = {}
    for name, column in asked.trials.parameters.columns.items():
        own, others = float(column.numbers[position]), column.numbers[~np.isnan(column.numbers)]
        if not np.isnan(own):
            found[name] = short(float((others < own).mean() + (others == own).mean() / 2))
    return found


def _neighbours(asked: Asked, position: int) -> dict[str, int | None]:
    """The numbers of the previous and next trial in the order of the query, or null."""
    mask = selection.chosen(asked.trials, asked.query)
    order = selection.in_order(asked.trials, asked.query, mask, asked.now_ms, lambda: places(asked))
    at = np.flatnonzero(order == position)
    if not len(at):
        return {"previous": None, "next": None}
    before, after = int(at[0]) - 1, int(at[0]) + 1
    numbers = asked.trials["number"]
    return {
        "previous": int(numbers[order[before]]) if before >= 0 else None,
        "next": int(numbers[order[after]]) if after < len(order) else None,
    }
