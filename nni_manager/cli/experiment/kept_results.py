"""Which experiments stay for their results when others are removed: what cannot be compared stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from nni_manager.domain.metrics import OptimizeMode

Experiment = dict[str, Any]
#: Name, direction and objectives: results of one group can be compared.
_Group = tuple[str, str | None, tuple[tuple[str, str], ...]]


def ids(experiments: Sequence[Experiment], count: int) -> frozenset[str]:
    """Ids of the `count` best of each group, and of all without a name or with results that are not known. One without
    a single best result comes last in its group, then the newest comes first."""
    groups: dict[_Group, list[Experiment]] = defaultdict(list)
    kept = set()
    for one in experiments:
        if is_known(one) and one["name"]:
            groups[_group(one)].append(one)
        else:
            kept.add(one["id"])
    return frozenset(kept | {one["id"] for group in groups.values() for one in sorted(group, key=_rank)[:count]})


def is_known(experiment: Experiment) -> bool:
    """Whether the manager knows its results; lists do not look into every database."""
    return experiment.get("counts") is not None and experiment.get("trialsMade") is not None


def _group(experiment: Experiment) -> _Group:
    objectives = tuple((experiment.get("objectives") or {}).items())
    return experiment["name"], experiment.get("optimizeMode"), objectives


def _rank(experiment: Experiment) -> tuple[bool, float, int]:
    best = experiment["best"]
    if best is None:
        return True, 0.0, -experiment["createdMs"]
    sign = -1 if experiment["optimizeMode"] == OptimizeMode.MAXIMIZE else 1
    return False, sign * best["value"], -experiment["createdMs"]
