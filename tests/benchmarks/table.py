"""The table of figures: each next to its floor and to NNI 3.0, from the same run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Target of a figure: at least or at most `limit`, optionally multiplied by the floor or NNI's figure (`of`)."""

    limit: float
    is_most: bool = False
    of: str = ""

    def __str__(self) -> str:
        return f"{'≤' if self.is_most else '≥'} {self.limit:g}" + (f" × {self.of}" if self.of else "")

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.is_most else value >= self.limit


def at_least(limit: float, of: str = "") -> Bar:
    return Bar(limit=limit, of=of)


def at_most(limit: float, of: str = "") -> Bar:
    return Bar(limit=limit, is_most=True, of=of)


#: Valid values of `of`.
FLOOR, NNI = "floor", "NNI"


class Table:
    """Print each row when it is known."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        print("| Figure | Floor | NNI 3.0 | Ours | × floor | × NNI | Bar |")
        print("|---|---|---|---|---|---|---|", flush=True)

    def row(
        self,
        name: str,
        ours: float | Sequence[float],
        *bars: Bar,
        floor: float | Sequence[float] | None = None,
        nni: float | Sequence[float] | None = None,
    ) -> None:
        """Shows medians. Ratios to a floor are computed within each repetition, because the machine's speed drifts."""
        ratios = {"": _median(ours), FLOOR: _ratio(ours, floor), NNI: _ratio(ours, nni)}
        values = [_median(floor), _median(nni), _median(ours), ratios[FLOOR], ratios[NNI]]
        cells = ["" if value is None else f"{value:.3g}" for value in values]
        print(f"| {name} | {' | '.join(cells)} | {', '.join(map(str, bars))} |", flush=True)
        for bar in bars:
            value = ratios[bar.of]
            assert value is not None, name
            if not bar.holds(value):
                self.missed.append(f"{name}: {value:.3g}, bar {bar}")

    def close(self) -> None:
        """Names of missed targets."""
        print(
            "\nEvery bar holds." if not self.missed else "\nMissed:\n" + "\n".join(f"- {line}" for line in self.missed)
        )


def _median(values: float | Sequence[float] | None) -> float | None:
    if values is None:
        return None
    return statistics.median(values) if isinstance(values, Sequence) else float(values)


def _ratio(ours: float | Sequence[float], other: float | Sequence[float] | None) -> float | None:
    if isinstance(ours, Sequence) and isinstance(other, Sequence) and len(ours) == len(other):
        return statistics.median(mine / theirs for mine, theirs in zip(ours, other, strict=True))
    mine, theirs = _median(ours), _median(other)
    return None if mine is None or not theirs else mine / theirs
