"""Parameters and dict results, flattened to columns.

``{"layer": {"_name": "conv", "size": 3}}`` is the column ``layer`` (``conv``) and the column ``layer.size``. Parameters
that are no mapping are the column ``value``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from nni_manager.analysis.columns.value_column import ABSENT, ValueColumn

#: Column of parameters that are no mapping.
WHOLE = "value"
#: Most columns; further names are counted, and left out.
MOST_COLUMNS = 400
_MOST_LEVELS = 20


class NamedColumns:
    """Columns by name, in the order in which the names came."""

    def __init__(self) -> None:
        self.columns: dict[str, ValueColumn] = {}
        self.size = 0
        #: Names beyond the most columns.
        self.left_out: set[str] = set()

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def resize(self, size: int) -> None:
        self.size = size
        for column in self.columns.values():
            column.resize(size)

    def put(self, positions: NDArray[np.int64], groups: Sequence[Mapping[str, Any]]) -> None:
        """Writes the flat groups of the trials at `positions`."""
        for name in dict.fromkeys(chain.from_iterable(groups)):
            self._column(name)
        for name, column in self.columns.items():
            column.put(positions, [group.get(name, ABSENT) for group in groups])

    def _column(self, name: str) -> None:
        if name in self.columns:
            return
        if len(self.columns) >= MOST_COLUMNS:
            if len(self.left_out) < MOST_COLUMNS:
                self.left_out.add(name)
            return
        self.columns[name] = ValueColumn()
        self.columns[name].resize(self.size)


def parsed(texts: Sequence[str]) -> list[Any]:
    """JSON texts, NaN and Infinity in them, as values; None for one that is no JSON."""
    try:
        found: list[Any] = from_json(f"[{','.join(texts)}]")
        if len(found) == len(texts):
            return found
    except ValueError:  # also a lone half of a surrogate pair, which may stand in stored text
        pass
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flat(parameters: Any) -> Mapping[str, Any]:
    """Flattened name → value."""
    if not isinstance(parameters, dict):
        return {WHOLE: parameters}
    if dict not in set(map(type, parameters.values())):
        return parameters
    found: dict[str, Any] = {}
    _flatten(parameters, "", found, _MOST_LEVELS)
    return found


def _flatten(group: Mapping[str, Any], prefix: str, found: dict[str, Any], levels: int) -> None:
    for name, value in group.items():
        if name == "_name" and prefix:
            found[prefix.removesuffix(".")] = value
        elif isinstance(value, dict) and levels:
            _flatten(value, f"{prefix}{name}.", found, levels - 1)
        else:
            found[f"{prefix}{name}"] = value
