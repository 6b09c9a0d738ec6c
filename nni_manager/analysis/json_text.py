"""Answers as JSON text: NaN and Infinity as strings, absent numbers as null, numbers of charts with seven digits."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticSerializationError, to_json

_DIGITS = 7


def encoded(answer: Any) -> bytes:
    """The answer as UTF-8 JSON."""
    try:
        return to_json(answer, inf_nan_mode="strings")
    except (PydanticSerializationError, UnicodeEncodeError):  # half of a surrogate pair in stored text
        return json.dumps(_strict(answer)).encode()


def number(value: float) -> float | None:
    """A number of an answer; null for NaN, which stands for an absent one."""
    return None if math.isnan(value) else float(value)


def numbers(values: NDArray[Any]) -> list[float | None]:
    """Numbers of a chart; null for NaN, which stands for an absent one."""
    return [None if value != value else short(value) for value in values.tolist()]


def short(value: float) -> float:
    """The number with seven significant digits; a whole one as it is."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.{_DIGITS}g}")


def plain(values: NDArray[Any]) -> list[Any]:
    """Whole numbers, truth values or texts."""
    return list(np.asarray(values).tolist())


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    return [_strict(entry) for entry in value] if isinstance(value, list | tuple) else value
