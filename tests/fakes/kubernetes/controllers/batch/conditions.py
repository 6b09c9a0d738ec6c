"""Conditions in the status of a Job."""

from __future__ import annotations

from typing import Any

from tests.fakes.kubernetes.defaults import now

Condition = dict[str, Any]


def true(status: dict[str, Any], *kinds: str) -> Condition | None:
    """The first of these conditions that is true."""
    held = status.get("conditions") or ()
    return next((one for one in held if one["type"] in kinds and one["status"] == "True"), None)


def final(status: dict[str, Any]) -> Condition | None:
    """The condition of a finished Job."""
    return true(status, "Complete", "Failed")


def put(status: dict[str, Any], kind: str, is_true: bool, reason: str, message: str) -> bool:
    """Add a condition, or change it in its place; returns whether it changed. A new one is never false."""
    held: list[Condition] = status.setdefault("conditions", [])
    at = next((at for at, one in enumerate(held) if one["type"] == kind), None)
    told = {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}
    if at is None and not is_true:
        return False
    if at is not None and all(held[at].get(name) == value for name, value in told.items()):
        return False
    moment = now()
    fresh = {**told, "lastProbeTime": moment, "lastTransitionTime": moment}
    if at is None:
        held.append(fresh)
    else:
        held[at] = fresh
    return True
