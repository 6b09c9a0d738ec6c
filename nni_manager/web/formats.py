"""Formats of the pages, in addition to those of `domain.formats`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from nni_manager.analysis.flattened import flat
from nni_manager.domain.formats import number

_LONGEST = 60
#: Integers in JSON may be larger than any float.
_HUGE = 10**300


def moment(ms: int) -> str:
    """Milliseconds since the epoch as ``2026-11-20 18:57:03 UTC``."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def rate(per_minute: float) -> str:
    """A rate in the smallest unit in which it is at least 1: ``8.2 / min``, ``3.1 / h``, ``2 / d``."""
    for factor, unit in ((1, "min"), (60, "h")):
        if per_minute * factor >= 1:
            return f"{per_minute * factor:.3g} / {unit}"
    return f"{per_minute * 1440:.2g} / d"


def limit(value: int | str | None) -> str:
    """A duration from the config: seconds, or text with a unit."""
    return "no limit" if value is None else f"{value} s" if isinstance(value, int) else value


def result(text: str | None) -> str:
    """A reported result: its number, or its shortened value. `text`: JSON, in which NaN and Infinity are allowed."""
    if text is None:
        return ""
    value = json.loads(text)
    if isinstance(value, dict):
        value = value.get("default", value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return number(value) if is_number and abs(value) < _HUGE else short(value)


def short(value: object) -> str:
    """A value as one line of limited length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def cell(value: object) -> str:
    """A value in a cell: a number with six significant digits, "" for a missing value, else one line."""
    if value is None:
        return ""
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _HUGE):
        return number(value)
    return short(value)


def whole(value: object) -> str:
    """A value with all its digits."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parameters(value: object) -> list[tuple[str, str]]:
    """(flattened name, value) pairs; the name of a value that is not a mapping is ""."""
    if isinstance(value, dict):
        return [(str(name), cell(inner)) for name, inner in flat(value).items()]
    return [("", cell(value))]


SPARK_WIDTH, SPARK_HEIGHT = 72, 18
_EDGE = 2


def spark_points(values: Sequence[object]) -> str:
    """Points of an SVG polyline of `SPARK_WIDTH` × `SPARK_HEIGHT`; empty: fewer than two numbers."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if len(numbers) < 2:
        return ""
    low, high = min(numbers), max(numbers)
    step = (SPARK_WIDTH - 2 * _EDGE) / (len(numbers) - 1)
    scale = (SPARK_HEIGHT - 2 * _EDGE) / ((high - low) or 1.0)
    middle = 0.0 if high > low else (SPARK_HEIGHT - 2 * _EDGE) / 2
    found = [
        (_EDGE + at * step, SPARK_HEIGHT - _EDGE - middle - (value - low) * scale) for at, value in enumerate(numbers)
    ]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in found)
