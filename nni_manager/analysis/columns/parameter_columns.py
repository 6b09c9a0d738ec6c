"""Parameters and dict results as columns, by their flat names (`analysis.flattened`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nni_manager.analysis.columns.value_column import ABSENT, ValueColumn

#: Most columns; further names are counted, and left out.
MOST_COLUMNS = 400


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
