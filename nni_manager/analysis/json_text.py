"""Answers as JSON text: NaN and Infinity as strings, absent numbers as null, numbers of charts with seven digits."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticSerializationError, to_json

_DIGITS = 7
#: Those of ten that are exact.
_POWERS = np.array([float(10**exponent) for exponent in range(23)])


def encoded(answer: Any) -> bytes:
    """The answer as UTF-8 JSON."""
    try:
        return to_json(answer, inf_nan_mode="strings")
    except (PydanticSerializationError, UnicodeEncodeError):  # a lone surrogate in stored text
        return json.dumps(_strict(answer)).encode()


def number(value: float) -> float | None:
    """A number of an answer; null for NaN, which stands for an absent one."""
    return None if math.isnan(value) else float(value)


def numbers(values: NDArray[Any]) -> list[float | None]:
    """Numbers of a chart, each like `short`; null for NaN, which stands for an absent one.

    They are rounded together: one by one, the thousands of a chart would take longer than everything else.
    """
    with np.errstate(divide="ignore"):
        places = _DIGITS - 1 - np.floor(np.log10(np.abs(values)))
    # whole ones, zero, infinity, NaN and what needs larger powers stay as they are
    is_near = (np.abs(places) < len(_POWERS)) & (values != np.trunc(values))
    near, power = values[is_near], _POWERS[np.abs(places[is_near]).astype(np.int64)]
    found = np.array(values, np.float64)
    found[is_near] = np.where(places[is_near] < 0, np.round(near / power) * power, np.round(near * power) / power)
    told: list[float | None] = found.tolist()
    for at in np.flatnonzero(~np.isfinite(found) | (found == np.trunc(found))).tolist():
        value = found[at]
        told[at] = None if value != value else int(value) if _is_whole(float(value)) else float(value)
    return told


def short(value: float) -> float:
    """The number with seven significant digits; integers are unchanged."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return int(value) if _is_whole(value) else float(f"{value:.{_DIGITS}g}")


def _is_whole(value: float) -> bool:
    return value.is_integer() and abs(value) < 2**53


def plain(values: NDArray[Any]) -> list[Any]:
    """Whole numbers, truth values or texts."""
    return list(np.asarray(values).tolist())


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _strict(entry) for key, entry in value.items()}
    return [_strict(entry) for entry in value] if isinstance(value, list | tuple) else value
