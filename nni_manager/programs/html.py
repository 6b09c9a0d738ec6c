"""An experiment in a notebook: a few facts, and the best result so far as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from nni_manager.client.formats import compact, direction, number
from nni_manager.programs import progress
from nni_manager.programs.progress import State

if TYPE_CHECKING:
    from nni_manager.programs.records import Trials

_WIDTH, _HEIGHT, _MARGIN = 480, 160, 28
#: Points of the drawing at most; of more trials, an even choice and every improvement.
_POINTS = 1000


def experiment(state: State, trials: Trials) -> str:
    """The HTML of an experiment as it is now."""
    facts = [f"<b>Experiment {escape(state['id'])}</b> {escape(str(state.get('name') or ''))}", _progress(state)]
    if state["hold"]:
        facts.append(f"On hold: {escape(state['hold']['sentence'])}")
    if best := state["best"]:
        which = direction(state.get("optimizeMode"))
        facts.append(f"Best{which} {number(best['value'])}: <code>{escape(compact(best['parameters']))}</code>")
    drawing = best_so_far(trials, maximize=state.get("optimizeMode") == "maximize")
    return "<div>" + "".join(f"<div>{fact}</div>" for fact in facts) + drawing + "</div>"


def _progress(state: State) -> str:
    return f"{escape(state['status'])}, {escape(progress.line(progress.read(state)))}"


def best_so_far(trials: Trials, *, maximize: bool) -> str:
    """An SVG with a point for each result and the line of the best so far; empty without a result."""
    points = [(one.number, one.value) for one in trials if one.value is not None and math.isfinite(one.value)]
    if not points:
        return ""
    steps = _steps(points, maximize=maximize)
    scale = _Scale(points)
    kept = points[:: math.ceil(len(points) / _POINTS)]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in map(scale.place, kept))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(scale.place, steps))
    return (
        f'<svg role="img" aria-label="result by trial, and the best so far" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}"><g fill="#999">{dots}</g>'
        f'<polyline points="{line}" fill="none" stroke="#0072b2" stroke-width="2"/>{scale.labels()}</svg>'
    )


def _steps(points: Sequence[tuple[int, float]], *, maximize: bool) -> list[tuple[int, float]]:
    """The corners of the line of the best so far."""
    steps = [points[0]]
    for at, value in points[1:]:
        if (value > steps[-1][1]) is maximize and value != steps[-1][1]:
            steps += [(at, steps[-1][1]), (at, value)]
    return [*steps, (points[-1][0], steps[-1][1])]


class _Scale:
    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        self._last = max(points[-1][0], 1)
        values = [value for _, value in points]
        self._low, self._high = min(values), max(values)

    def place(self, point: tuple[int, float]) -> tuple[float, float]:
        at, value = point
        share = (value - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        x = _MARGIN + at / self._last * (_WIDTH - 2 * _MARGIN)
        return x, _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)

    def labels(self) -> str:
        style = 'font-size="11" font-family="sans-serif" fill="currentColor"'
        return (
            f'<text x="2" y="14" {style}>{number(self._high)}</text>'
            f'<text x="2" y="{_HEIGHT - 4}" {style}>{number(self._low)}</text>'
            f'<text x="{_WIDTH - 2}" y="{_HEIGHT - 4}" text-anchor="end" {style}>trial {self._last}</text>'
        )
