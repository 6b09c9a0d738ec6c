"""The ordered points of a search space: the product of its dimensions' axes.

Points are computed from ranks and ranks from points, without enumeration, so a grid may have any number of points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from nni_manager.domain.space.dimension import Choice, Dimension, Integer, Real
from nni_manager.domain.space.parameters import text_of
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace


class Axis(Protocol):
    """The values of one dimension, by position."""

    @property
    def count(self) -> int: ...

    def point(self, position: int) -> object:
        """The value at a position, ``0 <= position < count``."""


class FiniteAxis(Axis, Protocol):
    """All values of a dimension."""

    def position(self, value: object) -> int | None:
        """The position of a value that the dimension contains; None if it is not on this axis."""


A = TypeVar("A", bound=Axis)


class Grid(Generic[A]):
    """The product of all axes: branches of a nested choice are added, everything else is multiplied."""

    def __init__(self, space: SearchSpace, axes: Mapping[Key, A]) -> None:
        """`axes`: those of all dimensions except nested choices."""
        self.space = space
        self.axes = axes
        self._groups: dict[Key, list[PlacedDimension]] = {}
        for place in space.places:
            self._groups.setdefault(place.parent, []).append(place)

    def count(self, group: Key = ()) -> int:
        """Number of points of the whole space, or of one branch."""
        return math.prod(self._count_of(place) for place in self._groups.get(group, []))

    def point(self, rank: int) -> dict[str, object]:
        """The point with that rank; the first dimension changes slowest."""
        positions: dict[Key, int] = {}
        self._divide(rank, (), positions)
        return self.space.assemble(lambda place: self._value(place, positions))

    def _count_of(self, place: PlacedDimension) -> int:
        if place.branches:
            return sum(self.count((*place.key, branch)) for branch in range(len(place.branches)))
        return self.axes[place.key].count

    def _divide(self, rank: int, group: Key, positions: dict[Key, int]) -> None:
        for place in reversed(self._groups.get(group, [])):
            rank, inner = divmod(rank, self._count_of(place))
            if place.branches:
                self._divide_branches(place, inner, positions)
            else:
                positions[place.key] = inner

    def _divide_branches(self, place: PlacedDimension, rank: int, positions: dict[Key, int]) -> None:
        for branch in range(len(place.branches)):
            count = self.count((*place.key, branch))
            if rank < count:
                positions[place.key] = branch
                self._divide(rank, (*place.key, branch), positions)
                return
            rank -= count

    def _value(self, place: PlacedDimension, positions: Mapping[Key, int]) -> object:
        return positions[place.key] if place.branches else self.axes[place.key].point(positions[place.key])


class FiniteGrid(Grid[FiniteAxis]):
    """The grid of all values; each point has one rank."""

    def rank(self, parameters: object) -> int | None:
        """The rank of a point; None if the parameters are not on this grid."""
        picks = self.space.picks(parameters)
        return None if picks is None else self._rank(picks, ())

    def _rank(self, picks: Mapping[Key, object], group: Key) -> int | None:
        rank = 0
        for place in self._groups.get(group, []):
            position = self._position(place, picks)
            if position is None:
                return None
            rank = rank * self._count_of(place) + position
        return rank

    def _position(self, place: PlacedDimension, picks: Mapping[Key, object]) -> int | None:
        value = picks[place.key]
        if not place.branches:
            return self.axes[place.key].position(value)
        assert isinstance(value, int)
        inner = self._rank(picks, (*place.key, value))
        before = sum(self.count((*place.key, branch)) for branch in range(value))
        return None if inner is None else before + inner


def finite_grid(space: SearchSpace) -> FiniteGrid | None:
    """The grid of all possible values; None if a dimension has infinitely many."""
    axes: dict[Key, FiniteAxis] = {}
    for place in space.places:
        if not place.branches:
            axis = finite_axis(place.dimension)
            if axis is None:
                return None
            axes[place.key] = axis
    return FiniteGrid(space, axes)


def finite_axis(dimension: Dimension) -> FiniteAxis | None:
    """All possible values of a dimension; None if there are infinitely many."""
    if isinstance(dimension, Choice):
        return _Options(dimension)
    if isinstance(dimension, Integer):
        return _Integers(dimension)
    if dimension.normal and dimension.step is not None:
        return _around_median(dimension)
    return _Multiples(dimension, dimension.size) if dimension.size is not None else None


class _Options:
    """Distinct options, in their order."""

    def __init__(self, dimension: Choice) -> None:
        self._dimension = dimension
        self._positions: dict[str, int] = {}
        self._options: list[object] = []
        for option in dimension.options:
            if self._positions.setdefault(text_of(option), len(self._options)) == len(self._options):
                self._options.append(option)

    @property
    def count(self) -> int:
        return len(self._options)

    def point(self, position: int) -> object:
        return self._options[position]

    def position(self, value: object) -> int | None:
        found = self._positions.get(text_of(value))
        return (
            self._positions[text_of(self._dimension.options[self._dimension.index(value)])] if found is None else found
        )


class _Integers:
    """All whole numbers, in order."""

    def __init__(self, dimension: Integer) -> None:
        self._dimension = dimension
        self.count = dimension.size

    def point(self, position: int) -> object:
        return self._dimension.point(position)

    def position(self, value: object) -> int | None:
        return self._dimension.index(value)


class _Multiples:
    """All multiples of the step within bounds, in order; without a step, the only number."""

    def __init__(self, dimension: Real, count: int) -> None:
        self._dimension = dimension
        self.count = count

    def point(self, position: int) -> object:
        return self._dimension.point(position)

    def position(self, value: object) -> int | None:
        assert isinstance(value, int | float)
        if self._dimension.step is None or self.count == 1:
            return 0
        return self._dimension.multiples(value) - self._dimension.multiples(self._dimension.first)


class _AroundMedian:
    """Multiples of the step from `low` to `high` times it: the median, then one above, one below, two above…"""

    def __init__(self, dimension: Real, low: int, middle: int, high: int) -> None:
        self._dimension = dimension
        self._middle = middle
        #: Up to this distance, values are on both sides; beyond it, only on `side`.
        self._both = min(middle - low, high - middle)
        self._side = 1 if high - middle > self._both else -1
        self.count = high - low + 1

    def point(self, position: int) -> object:
        if position > 2 * self._both:
            away = self._side * (position - self._both)
        else:
            away = (position + 1) // 2 if position % 2 else -(position // 2)
        return self._dimension.multiple(self._middle + away)

    def position(self, value: object) -> int | None:
        assert isinstance(value, int | float)
        away = self._dimension.multiples(value) - self._middle
        position = abs(away) + self._both
        if abs(away) <= self._both:
            position = 2 * away - 1 if away > 0 else -2 * away
        elif away * self._side < 0:
            return None
        return position if position < self.count else None


def _around_median(dimension: Real) -> _AroundMedian | None:
    """The multiples that a normal distribution can draw: a number of the unit interval has 53 bits."""
    low, middle, high = (dimension.quantile(unit) for unit in (0.0, 0.5, 1.0))
    assert dimension.step is not None
    if dimension.step < math.ulp(max(-low, high)):
        return None  # floating-point numbers of that size lie further apart than multiples of `step`
    return _AroundMedian(dimension, *map(dimension.multiples, (low, middle, high)))


def number_of_points(space: SearchSpace) -> float:
    """The number of distinct parameters; infinite if a dimension has infinitely many values."""
    grid = finite_grid(space)
    return math.inf if grid is None else grid.count()
