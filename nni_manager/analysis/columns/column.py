"""Columns that grow at their end: arrays, values of any kind, and groups of columns by flat names (`flattened`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

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
        """Grow to `size` elements; new ones have the fill value."""
        if size > len(self._data):
            grown = np.empty(max(size, len(self._data) * 3 // 2), self._data.dtype)
            grown[: self.size] = self.array
            self._data = grown
        self._data[self.size : size] = self._fill
        self.size = size


class _Absent:
    """The type of `ABSENT`."""


#: Value of a trial without one.
ABSENT: Any = _Absent()
#: Maximum number of different values that are not numbers; later ones share a code.
MOST_LABELS = 10_000
_OTHER = "…"


class Categories(NamedTuple):
    """A column as choices: their labels, and the index of each trial's choice, or -1."""

    labels: list[Any]
    codes: Integers


class ValueColumn:
    """The values of a name, by position of the trial."""

    def __init__(self) -> None:
        self._numbers = Growing(np.float64, np.nan)
        #: None: all values are numbers, or absent.
        self._codes: Growing | None = None
        self._index: dict[Any, int] = {ABSENT: -1}
        #: What each code stands for.
        self.labels: list[Any] = []

    @property
    def numbers(self) -> Floats:
        """The number of each trial, or NaN."""
        return self._numbers.array

    @property
    def present(self) -> Mask:
        found: Mask = ~np.isnan(self.numbers)
        return found if self._codes is None else found | (self._codes.array >= 0)

    @property
    def has_texts(self) -> bool:
        """Whether some values are not numbers."""
        return bool(self.labels)

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes + (self._codes.nbytes if self._codes else 0) + 200 * len(self.labels)

    def resize(self, size: int) -> None:
        self._numbers.resize(size)
        if self._codes is not None:
            self._codes.resize(size)

    def put(self, positions: NDArray[np.int64], values: Sequence[Any]) -> None:
        """Write values, possibly `ABSENT`, at positions of trials."""
        kinds = set(map(type, values))
        numbers = _as_numbers(values, kinds)
        if numbers is not None:
            self._numbers.array[positions] = numbers
            if self._codes is not None:
                self._codes.array[positions] = -1
            return
        if self._codes is None:
            self._codes = Growing(np.int32, -1)
            self._codes.resize(self._numbers.size)
        are_texts = kinds <= {str, _Absent}
        self._numbers.array[positions] = math.nan if are_texts else [number_of(value) for value in values]
        known = list(map(self._index.get, values)) if are_texts else [None]
        self._codes.array[positions] = [self._code(value) for value in values] if None in known else known

    def categories(self) -> Categories:
        """The column as choices: its numbers in order, then its other values."""
        numbers = self.numbers
        distinct = np.unique(numbers[~np.isnan(numbers)])
        codes = np.full(len(numbers), -1, np.int64)
        has_number = ~np.isnan(numbers)
        codes[has_number] = np.searchsorted(distinct, numbers[has_number])
        if self._codes is not None:
            has_text = self._codes.array >= 0
            codes[has_text] = self._codes.array[has_text] + len(distinct)
        return Categories([_plain(number) for number in distinct] + self.labels, codes)

    def matching(self, choices: Iterable[str]) -> Mask:
        """The trials whose value is one of `choices`: a text, with or without quotes, or JSON."""
        found = np.zeros(self._numbers.size, np.bool_)
        for choice in choices:
            found |= self._spelled(choice)
        return found

    def _spelled(self, choice: str) -> Mask:
        found = np.zeros(self._numbers.size, np.bool_)
        if self._codes is not None:
            codes = [code for code, label in enumerate(self.labels) if _is_spelled(label, choice)]
            found |= np.isin(self._codes.array, codes)
        try:
            number = float(choice)
        except ValueError:
            return found
        return found if math.isnan(number) else found | (self.numbers == number)

    def _code(self, value: Any) -> int:
        if value is ABSENT or _is_number(value):
            return -1
        key = value if type(value) is str else "\0" + json.dumps(value, sort_keys=True)
        code = self._index.get(key)
        if code is None and len(self.labels) < MOST_LABELS:
            code = self._index[key] = len(self.labels)
            self.labels.append(value if code < MOST_LABELS - 1 else _OTHER)
        return MOST_LABELS - 1 if code is None else code


def _as_numbers(values: Sequence[Any], kinds: set[type]) -> Floats | None:
    """The values, of these types, as numbers, NaN for absent ones; None if some are not numbers."""
    if not kinds <= {int, float, _Absent}:
        return None
    absent = sum(value is ABSENT for value in values) if _Absent in kinds else 0
    plain = [math.nan if value is ABSENT else value for value in values] if absent else values
    try:
        numbers = np.array(plain, np.float64)
    except OverflowError:  # a whole number beyond all floats
        return None
    return numbers if np.count_nonzero(np.isnan(numbers)) == absent else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and not (type(value) is float and math.isnan(value))


def number_of(value: Any) -> float:
    """A JSON value as a number, or NaN."""
    if type(value) not in (int, float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_spelled(label: Any, choice: str) -> bool:
    if isinstance(label, str):
        return choice in (label, json.dumps(label))
    try:
        return bool(json.loads(choice) == label) and type(json.loads(choice)) is type(label)
    except (ValueError, RecursionError):
        return False


def _plain(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) < 2**53 else float(number)


#: Maximum number of columns; other names are counted, but omitted.
MOST_COLUMNS = 400


class NamedColumns:
    """Columns by name, in the order of arrival."""

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
        """Write the flat groups of the trials at `positions`."""
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
