"""Arrays that grow at their end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_SMALLEST = 64


class Growing:
    """A one-dimensional array; `array` is the part in use, and a view."""

    def __init__(self, dtype: type, fill: float) -> None:
        self._data: NDArray[Any] = np.empty(_SMALLEST, dtype)
        self._fill = fill
        self.size = 0

    @property
    def array(self) -> NDArray[Any]:
        return self._data[: self.size]

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def resize(self, size: int) -> None:
        """Grows to `size` elements; new ones have the fill value."""
        if size > len(self._data):
            grown = np.empty(max(size, len(self._data) * 3 // 2), self._data.dtype)
            grown[: self.size] = self.array
            self._data = grown
        self._data[self.size : size] = self._fill
        self.size = size

    def put(self, positions: Any, values: Any) -> None:
        """Writes values at positions below `size`."""
        self._data[positions] = values
