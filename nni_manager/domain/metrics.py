"""Metrics: what trials report. One line of an outbox is one metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class MetricType(StrEnum):
    """Wire words are NNI's."""

    #: An intermediate result.
    PERIODICAL = "PERIODICAL"
    #: The final result.
    FINAL = "FINAL"


class OptimizeMode(StrEnum):
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


#: `OptimizeMode` as configs write it.
OptimizeModeName = Literal["maximize", "minimize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One reported value. (trial, attempt, outbox, number) identifies it."""

    type: MetricType
    #: JSON text of the value as reported; NaN and Infinity may stand bare in it.
    data: str
    #: The number that is compared: the value itself or its ``default``; None when there is none.
    value: float | None
    #: 0-based line in the stretch of the outbox it came with.
    number: int


def default_number(value: object) -> float | None:
    """A metric's comparable number: itself, or the entry ``default`` of an object; None when not a number."""
    if isinstance(value, dict):
        value = value.get("default")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf if value > 0 else -math.inf
