"""``failures``: failed trials grouped by how they failed, and the parameter ranges in which each failure happens."""

from __future__ import annotations

from typing import Any

import numpy as np

from nni_manager.analysis import selection
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.columns.growing import Integers
from nni_manager.analysis.failure_ranges import failing_ranges
from nni_manager.store.experiment import trial_columns

MOST_GROUPS = 50
#: Groups whose parameter ranges are searched, the largest ones.
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
    attempt, cause, exit_code, signal, line = _evidence(asked, newest)
    return {
        "failure": trials.failure_hashes[code],
        "key": trials.failures[code],
        "sentence": trials.reasons.get(newest, ""),
        "cause": cause or _cause(trials.failures[code]),
        "exitCode": exit_code,
        "signal": signal,
        "line": line,
        "count": len(positions),
        "first": _moment(asked, positions, 0),
        "last": _moment(asked, positions, -1),
        "ranges": [],
        "example": {"number": int(trials["number"][newest]), "id": trials.ids[newest], "attempt": attempt},
    }


def _evidence(asked: Asked, position: int) -> tuple[Any, ...]:
    return trial_columns.failure_evidence(asked.connection, asked.trials.ids[position]) or (1, "", None, None, "")


def _cause(key: str) -> str:
    """The reason that a failure key begins with."""
    return key.partition(":")[0].partition(",")[0]


def _moment(asked: Asked, positions: Integers, at: int) -> dict[str, Any]:
    trials, position = asked.trials, int(positions[at])
    ended = trials["ended"][position]
    moment = None if np.isnan(ended) else int(ended)
    return {"number": int(trials["number"][position]), "id": trials.ids[position], "ms": moment}
