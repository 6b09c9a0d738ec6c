"""The Pareto set of a report: its trials, and all trials by two objectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nni_manager.analysis.query import MOST_ROWS, Query
from nni_manager.analysis.service import Analysis
from nni_manager.domain.trial import TrialStatus
from nni_manager.web.report.chart_answers import ask


async def collect(analysis: Analysis, id: str, objectives: Sequence[str], members: frozenset[str]) -> Mapping[str, Any]:
    """``names`` of the objectives; ``trials`` and ``front``, each a list of [first value, second value, number]. Of
    more than a thousand trials that succeeded, the newest. `members`: ids of the trials in the set."""
    query = Query(status=(TrialStatus.SUCCEEDED,), limit=MOST_ROWS)
    rows = (await ask(analysis, id, "trials", query))["rows"]
    first, second = objectives[0], objectives[1]
    points = {row["id"]: [row["metrics"].get(first), row["metrics"].get(second), row["number"]] for row in rows}
    drawn = {id_: point for id_, point in points.items() if all(_is_finite(value) for value in point[:2])}
    front = sorted((drawn[id_] for id_ in drawn.keys() & members), key=lambda point: point[0])
    return {"names": list(objectives), "trials": list(drawn.values()), "front": front}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
