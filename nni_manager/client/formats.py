"""Formats values for users, in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nni_manager.domain import formats
from nni_manager.domain.experiment import ExperimentStatus


def number(value: object, digits: int = 6) -> str:
    """A result for users, or empty."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else compact(value)
    return formats.number(value, digits)


def direction(optimize_mode: str | None, note: str | None = "") -> str:
    """The meaning of "best": `` (highest)``, or `` (lowest: default of TPE)`` with a note; empty: unknown."""
    word = {"maximize": "highest", "minimize": "lowest"}.get(optimize_mode or "", "")
    return f" ({': '.join(filter(None, (word, note)))})" if word else ""


def closed_status(status: str, ended_as: str | None) -> str:
    """The status of an experiment; ``DONE (closed)`` for one that was stopped after it was done."""
    return f"{ended_as} (closed)" if ended_as and status == ExperimentStatus.STOPPED else status


def best_label(state: Mapping[str, Any]) -> str:
    """``best`` with its meaning, of an experiment's state: ``best (highest: direction not set)``."""
    return f"best{direction(state.get('optimizeMode'), state.get('directionNote'))}"


def objectives(state: Mapping[str, Any]) -> str:
    """The objectives of an experiment's state as text, such as ``accuracy (highest), latency (lowest)``."""
    return ", ".join(f"{name}{direction(mode)}" for name, mode in (state.get("objectives") or {}).items())


def compact(value: object) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def moment(ms: int | None) -> str:
    """A time in milliseconds since the epoch as local time with zone; empty for None."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def cut(line: str, columns: int) -> str:
    """`line` in at most `columns` characters."""
    return line if len(line) <= columns else line[: max(columns - 1, 0)] + "…"
