"""Dimensions of a search space.

Each maps a number of the unit interval to a value (`quantile`: distribution, then rounding) and back (`unit`), so that
algorithms need no knowledge of distributions. It also checks whether it contains a value, and counts its grid points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several unordered values. For a nested choice, the options are the branches' indices."""

    options: tuple[object, ...]

    @property
    def size(self) -> int:
        """Number of grid points."""
        return len(self.options)

    def point(self, index: int) -> object:
        """The grid point with that index, ``0 <= index < size``."""
        return self.options[index]

    def quantile(self, unit: float) -> object:
        return self.options[_slot(unit, len(self.options))]

    def unit(self, value: object) -> float:
        return (self.index(value) + 0.5) / len(self.options)

    def index(self, value: object) -> int:
        """The index of the first equal option, or of one equal up to rounding. Raises ValueError."""
        for same in (_same, _nearly_same):
            for index, option in enumerate(self.options):
                if same(option, value):
                    return index
        raise ValueError(f"{value!r} is not among the options")

    def contains(self, value: object) -> bool:
        return any(_same(option, value) or _nearly_same(option, value) for option in self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """A whole number, ``low <= value < high``."""

    low: int
    high: int

    @property
    def size(self) -> int:
        return self.high - self.low

    def point(self, index: int) -> int:
        return self.low + index

    def quantile(self, unit: float) -> int:
        return self.low + _slot(unit, self.size)

    def unit(self, value: object) -> float:
        return (self.index(value) + 0.5) / self.size

    def index(self, value: object) -> int:
        """The index of a value that the dimension contains."""
        assert isinstance(value, int | float)
        return int(value) - self.low

    def contains(self, value: object) -> bool:
        """Whether it is a whole number within the bounds; JSON of other programs may have 3.0 for 3."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            return False
        return self.low <= value < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A floating-point number: uniform or normal, on a plain or logarithmic scale, rounded to multiples or not."""

    #: Uniform: the bounds. Normal: mean and standard deviation, of the logarithm when `log`.
    first: float
    second: float
    normal: bool = False
    log: bool = False
    #: Values are multiples of it; the bounds of a uniform one count as multiples.
    step: float | None = None

    @property
    def size(self) -> int | None:
        """Number of grid points, None without a finite grid."""
        if self.normal:
            return None
        if self.first == self.second:
            return 1
        if self.step is None or self.step < math.ulp(max(-self.first, self.second)):
            return None  # floating-point numbers of that size are further apart than multiples of `step`
        return self.multiples(self.second) - self.multiples(self.first) + 1

    def point(self, index: int) -> float:
        if self.step is None:
            return self.first
        return self._clipped(self.multiple(self.multiples(self.first) + index))

    def multiple(self, count: int) -> float:
        """A multiple of the step in decimals: 3 times 0.1 is 0.3, and 3 times 0.3333333333333333 is 1."""
        assert self.step is not None
        product, exact = count * self.step, float(count * Decimal(repr(self.step)))
        return exact if len(repr(exact)) < len(repr(product)) and math.isfinite(exact) else product

    def multiples(self, value: float) -> int:
        """The number of steps in a value, rounded."""
        assert self.step is not None
        return round(value / self.step)

    def quantile(self, unit: float) -> float:
        if self.normal:  # 0 and 1 are infinitely far away
            place = _normal(self.first, self.second).inv_cdf(min(max(unit, 2.0**-53), 1 - 2.0**-53))
        else:
            low, high = self._bounds()
            place = low + unit * (high - low)
        # exp() of more than 709 overflows
        return self._rounded(math.exp(min(place, 709.0)) if self.log else place)

    def unit(self, value: object) -> float:
        """The middle of the interval that is rounded to `value`, not the number that it came from."""
        assert isinstance(value, int | float)
        if self.log and value <= 0:
            return 0.0
        place = math.log(value) if self.log else float(value)
        if self.normal:
            return _normal(self.first, self.second).cdf(place)
        low, high = self._bounds()
        return min(max((place - low) / (high - low), 0.0), 1.0) if high > low else 0.5

    def contains(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if not self.normal and not self.first <= value <= self.second:
            return False
        if self.log and (value < 0 or (value == 0 and self.step is None)):
            return False
        return math.isclose(self._rounded(float(value)), value, rel_tol=1e-9, abs_tol=1e-12)

    def _bounds(self) -> tuple[float, float]:
        return (math.log(self.first), math.log(self.second)) if self.log else (self.first, self.second)

    def _rounded(self, value: float) -> float:
        if self.step is not None and math.isfinite(value / self.step):
            value = self.multiple(self.multiples(value))
        return value if self.normal else self._clipped(value)

    def _clipped(self, value: float) -> float:
        return min(max(value, self.first), self.second)


Dimension = Choice | Integer | Real


def _same(option: object, value: object) -> bool:
    # to Python, True equals 1
    return option == value and isinstance(option, bool) == isinstance(value, bool)


def _nearly_same(option: object, value: object) -> bool:
    """Whether both are numbers that are equal up to rounding: 0.3 and 0.30000000000000004."""
    return (
        isinstance(option, float)
        and isinstance(value, float)
        and math.isfinite(value)
        and math.isclose(option, value, rel_tol=1e-12)
    )


def _slot(unit: float, count: int) -> int:
    return min(max(int(unit * count), 0), count - 1)


def _normal(mu: float, sigma: float) -> NormalDist:
    # the import takes 5 ms, which most search spaces save
    from statistics import NormalDist

    return NormalDist(mu, sigma)
