"""Requests to a tuner's process, as the daemon sends them."""

from __future__ import annotations

from typing import Any

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}

Message = dict[str, Any]


def start(**changes: Any) -> Message:
    request = {"verb": "start", "search_space": SPACE, "tuner": {"name": "Random", "class_args": {"seed": 1}}}
    return {**request, "assessor": None, "history": [], "unfinished": [], "imported": [], **changes}


def item(number: int | None, value: object, parameters: object = None, **changes: Any) -> Message:
    status = "FAILED" if value is None else "SUCCEEDED"
    fields = {"parameter_id": number, "parameters": parameters or {"x": 0.5}, "value": value, "status": status}
    return {**fields, "trial_id": f"t{number}", "source": "algorithm", **changes}
