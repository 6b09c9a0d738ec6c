"""``importance``: how much each parameter explains of what makes a trial one of the best."""

from __future__ import annotations

from typing import Any

from nni_manager.analysis import importance
from nni_manager.analysis.asked import Asked
from nni_manager.analysis.json_text import short


def answer(asked: Asked) -> dict[str, Any]:
    found = importance.current(asked)
    return {
        "state": found.state,
        "method": importance.METHOD,
        "sample": found.sample,
        "of": found.completed,
        "sentence": found.sentence or _sentence(found),
        "importances": [{"name": name, "value": short(share)} for name, share in found.values],
    }


def _sentence(found: importance.Importance) -> str:
    which = (
        f"{found.sample} of {found.completed} trials" if found.sample < found.completed else f"{found.sample} trials"
    )
    return f"{importance.METHOD} of {which} with a result; parameters that some of them lack are left out"
