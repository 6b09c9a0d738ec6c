"""Small curves within a line of text."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 72, 18
_EDGE = 2


def points(values: Sequence[object]) -> str:
    """The points of an SVG polyline of `WIDTH` × `HEIGHT`, greater values higher; empty: fewer than two numbers."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if len(numbers) < 2:
        return ""
    low, high = min(numbers), max(numbers)
    step = (WIDTH - 2 * _EDGE) / (len(numbers) - 1)
    scale = (HEIGHT - 2 * _EDGE) / ((high - low) or 1.0)
    middle = 0.0 if high > low else (HEIGHT - 2 * _EDGE) / 2
    found = [(_EDGE + at * step, HEIGHT - _EDGE - middle - (value - low) * scale) for at, value in enumerate(numbers)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in found)
