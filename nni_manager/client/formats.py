"""Values as people read them, in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def number(value: object, digits: int = 6) -> str:
    """A result as people read it; empty when there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else compact(value)
    return str(value) if isinstance(value, int) or not math.isfinite(value) else f"{value:.{digits}g}"


def direction(optimize_mode: str | None) -> str:
    """The meaning of "best", `` (highest)`` or `` (lowest)``; empty: unknown."""
    return {"maximize": " (highest)", "minimize": " (lowest)"}.get(optimize_mode or "", "")


def objectives(state: Mapping[str, Any]) -> str:
    """The objectives of an experiment's state in words, such as ``accuracy (highest), latency (lowest)``."""
    return ", ".join(f"{name}{direction(mode)}" for name, mode in (state.get("objectives") or {}).items())


def compact(value: object) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def moment(ms: int | None) -> str:
    """A moment, given in milliseconds since the epoch, in local time with its zone; empty for None."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def duration(seconds: float) -> str:
    """A duration as people read it, such as ``0:00:07`` or ``3 d 04:10:00``."""
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02}:{minute:02}:{second:02}" if days else f"{hour}:{minute:02}:{second:02}"


def size(bytes: int) -> str:
    """Bytes as people read them, such as ``12 kB`` or ``1.5 GB``."""
    if bytes < 1000:
        return f"{bytes} B"
    units = ("kB", "MB", "GB", "TB")
    power = min(len(units), int(math.log10(bytes) / 3 + 1e-9))
    return f"{bytes / 1000**power:.3g} {units[power - 1]}"


def cut(line: str, columns: int) -> str:
    """`line` in at most `columns` characters."""
    return line if len(line) <= columns else line[: max(columns - 1, 0)] + "…"
