"""Chart of the best result so far as SVG, for notebooks and for pages without JavaScript."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from nni_manager.domain.formats import number

_WIDTH, _HEIGHT, _MARGIN = 480, 160, 28
#: Maximum number of points. Of more trials, an even sample and every improvement are drawn.
_POINTS = 1000
#: Style of a standalone image, which does not inherit the colours of a page.
_DARK = "<style>@media (prefers-color-scheme: dark) { svg { color: #e6e6e6 } polyline { stroke: #56b4e9 } }</style>"

#: A trial's number, its result if that is a number, and whether the result can be the best.
Result = tuple[int, object, bool]
_Point = tuple[int, float, bool]


def drawing(results: Iterable[Result], *, maximize: bool) -> str:
    """SVG with a point for each result and a line for the best so far; empty without results.

    `results`: ordered by trial number.
    """
    points = _finite(results)
    return _svg(_contents(points, maximize=maximize)) if points else ""


def image(results: Iterable[Result], *, maximize: bool) -> str:
    """The chart as a standalone SVG file; says "no result yet" without results."""
    points = _finite(results)
    nothing = f'<text x="{_MARGIN}" y="{_HEIGHT // 2}" {_LOOK}>no result yet</text>'
    return _svg(_DARK + (_contents(points, maximize=maximize) if points else nothing))


def _finite(results: Iterable[Result]) -> list[_Point]:
    return [
        (at, value, can_be_best)
        for at, value, can_be_best in results
        if isinstance(value, int | float) and math.isfinite(value)
    ]


_LOOK = 'font-size="11" font-family="sans-serif" fill="currentColor"'


def _svg(contents: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="result by trial, and the best so far" '
        f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}">{contents}</svg>'
    )


def _contents(points: Sequence[_Point], *, maximize: bool) -> str:
    scale = _Scale(points)
    kept = [(at, value) for at, value, _ in points[:: math.ceil(len(points) / _POINTS)]]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in map(scale.place, kept))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(scale.place, _steps(points, maximize=maximize)))
    return (
        f'<g fill="#999">{dots}</g>'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2"/>{scale.labels()}'
    )


def _steps(points: Sequence[_Point], *, maximize: bool) -> list[tuple[int, float]]:
    """Corners of the line of the best so far; empty if no result can be the best."""
    steps: list[tuple[int, float]] = []
    for at, value, can_be_best in points:
        if can_be_best and not steps:
            steps = [(at, value)]
        elif can_be_best and (value > steps[-1][1]) is maximize and value != steps[-1][1]:
            steps += [(at, steps[-1][1]), (at, value)]
    return [*steps, (points[-1][0], steps[-1][1])] if steps else []


class _Scale:
    def __init__(self, points: Sequence[_Point]) -> None:
        self._last = max(points[-1][0], 1)
        values = [value for _, value, _ in points]
        self._low, self._high = min(values), max(values)

    def place(self, point: tuple[int, float]) -> tuple[float, float]:
        at, value = point
        share = (value - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        x = _MARGIN + at / self._last * (_WIDTH - 2 * _MARGIN)
        return x, _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)

    def labels(self) -> str:
        return (
            f'<text x="2" y="14" {_LOOK}>{number(self._high)}</text>'
            f'<text x="2" y="{_HEIGHT - 4}" {_LOOK}>{number(self._low)}</text>'
            f'<text x="{_WIDTH - 2}" y="{_HEIGHT - 4}" text-anchor="end" {_LOOK}>trial {self._last}</text>'
        )
