"""Helpers for the fields of a config: paths, spellings, units and lists of GPUs."""

from __future__ import annotations

import math
import os

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional

_TIMES = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SIZES = {"tb": 1024**2, "gb": 1024, "mb": 1, "kb": 1 / 1024, "b": 1 / 1024**2}


def is_missing(value: Any) -> bool:
    """Whether a field is not set."""
    return value is None


def camel_case(key: str) -> str:
    """The name of a field as experiment files spell it."""
    first, *others = key.strip("_").split("_")
    return first + "".join(part.title() for part in others)


def case_insensitive(key: str) -> str:
    """The name of a field without its spelling."""
    return key.replace("_", "").lower()


def resolve_path(path: Any, base_path: Any) -> str:
    """The absolute path; a relative one starts at `base_path`."""
    return os.path.realpath(os.path.join(base_path, os.path.expanduser(path)))


def canonical_gpu_indices(indices: Any) -> Optional[List[int]]:
    """The list of indices that a number, a text such as ``0,1`` or a list stands for."""
    if isinstance(indices, str):
        return [int(index) for index in indices.split(",")]
    return [indices] if isinstance(indices, int) else indices


def validate_gpu_indices(indices: Optional[List[int]]) -> None:
    """Raises ValueError for an index that is negative, or there twice."""
    for index in indices or ():
        if index < 0:
            raise ValueError("The GPU index {} of {} is negative.".format(index, indices))
        if indices is not None and indices.count(index) > 1:
            raise ValueError("The GPU index {} is in {} more than once.".format(index, indices))


def parse_time(value: Any) -> Any:
    """Seconds of a text such as ``1.5h``, rounded up; a number is returned as it is. Raises ValueError."""
    return _in_units(value, _TIMES)


def parse_memory_size(value: Any) -> Any:
    """Megabytes of a text such as ``2gb``, rounded up; a number is returned as it is. Raises ValueError."""
    return _in_units(value, _SIZES)


def _in_units(value: Any, units: Mapping[str, float]) -> Any:
    if not isinstance(value, str):
        return value
    text = value.lower()
    for unit, factor in units.items():  # b is the last, as kb ends with it
        if text.endswith(unit):
            return math.ceil(float(text[: -len(unit)]) * factor)
    raise ValueError("{!r} has no unit: write a number and one of {}.".format(value, ", ".join(units)))


def diff(config1: Any, config2: Any, from_: str = "", to_: str = "") -> str:
    """The lines of two configs in canonical form that differ, as a unified diff; empty: they are alike."""
    from difflib import unified_diff
    from json import dumps

    texts = [dumps(one.json(), indent=1, sort_keys=True, default=str).splitlines() for one in (config1, config2)]
    return "\n".join(unified_diff(*texts, from_, to_, lineterm=""))
