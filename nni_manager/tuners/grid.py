"""GridSearch: every combination once.

Finite dimensions are enumerated completely. The others are halved repeatedly: first the median, then the
quartiles, then the eighths… Such a grid contains the coarser ones, so parameters of all known trials are remembered
and left out. That memory is the whole state: a restarted tuner goes through the grid from its beginning and leaves out
the recorded trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nni_manager.domain.space.dimension import Real
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace, parse
from nni_manager.tuners.contract import Data, NoMoreProposals, Pending, Result, Tuner
from nni_manager.tuners.same_parameters import text_of

#: Finer than this, floating-point numbers no longer differ.
_LEVELS = 50


class GridSearch(Tuner):
    """Ends when all combinations were proposed; with a continuous dimension practically never."""

    proposes_ahead = True

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._combinations: Iterator[dict[str, object]] = iter(())

    def update_search_space(self, search_space: object) -> None:
        self._combinations = combinations(parse(search_space))

    def propose(self, parameter_id: int) -> dict[str, object]:
        for parameters in self._combinations:
            if self._is_new(parameters):
                return parameters
        raise NoMoreProposals(permanently=True)

    def learn(self, result: Result) -> None:
        self._is_new(result.parameters)

    def adopt(self, pending: Pending) -> None:
        self._is_new(pending.parameters)

    def import_data(self, data: Data) -> None:
        for entry in data:
            self._is_new(entry.get("parameter"))

    def state(self) -> dict[str, object]:
        return {"seen": len(self._seen)}

    def _is_new(self, parameters: object) -> bool:
        """Whether these parameters are new; remembers them."""
        text = text_of(parameters)
        if text in self._seen:
            return False
        self._seen.add(text)
        return True


def number_of_points(space: SearchSpace) -> float:
    """How many unlike parameters there are; infinite where a dimension has no end of values."""
    return math.inf if any(place.dimension.size is None for place in space.places) else _Grid(space).count(())


def combinations(space: SearchSpace) -> Iterator[dict[str, object]]:
    """All combinations on ever finer grids; those of a coarser grid come again on the finer ones."""
    grid = _Grid(space)
    before = 0
    for level in range(_LEVELS):
        grid.refine(level)
        count = grid.count(())
        if count == before:
            continue  # at this level nothing became finer
        for rank in range(count):
            yield grid.combination(rank)
        before = count


class _Grid:
    """The product of all axes at one level: branches of a nested choice are added, everything else is multiplied."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._axes = {place.key: _axis(place) for place in space.places}
        self._groups: dict[Key, list[PlacedDimension]] = {}
        for place in space.places:
            self._groups.setdefault(place.parent, []).append(place)

    def refine(self, level: int) -> None:
        for axis in self._axes.values():
            axis.refine(level)

    def count(self, group: Key) -> int:
        """Number of combinations in the whole space, or in one branch."""
        count = 1
        for place in self._groups.get(group, []):
            count *= self._count_of(place)
        return count

    def combination(self, rank: int) -> dict[str, object]:
        """The combination with that number; the first dimension changes slowest."""
        ranks: dict[Key, int] = {}
        self._divide(rank, (), ranks)
        return self._space.assemble(lambda place: self._value(place, ranks))

    def _count_of(self, place: PlacedDimension) -> int:
        if place.branches:
            return sum(self.count((*place.key, branch)) for branch in range(len(place.branches)))
        return self._axes[place.key].count

    def _divide(self, rank: int, group: Key, ranks: dict[Key, int]) -> None:
        for place in reversed(self._groups.get(group, [])):
            rank, inner = divmod(rank, self._count_of(place))
            if place.branches:
                self._divide_branches(place, inner, ranks)
            else:
                ranks[place.key] = inner

    def _divide_branches(self, place: PlacedDimension, rank: int, ranks: dict[Key, int]) -> None:
        for branch in range(len(place.branches)):
            count = self.count((*place.key, branch))
            if rank < count:
                ranks[place.key] = branch
                self._divide(rank, (*place.key, branch), ranks)
                return
            rank -= count

    def _value(self, place: PlacedDimension, ranks: dict[Key, int]) -> object:
        return ranks[place.key] if place.branches else self._axes[place.key].point(ranks[place.key])


class _Finite:
    """All values from the start."""

    def __init__(self, place: PlacedDimension, size: int) -> None:
        self._dimension = place.dimension
        self.count = size

    def refine(self, level: int) -> None:
        """Does nothing: the values of a choice cannot be refined."""

    def point(self, index: int) -> object:
        return self._dimension.point(index)


class _Infinite:
    """1/2; 1/4, 3/4; 1/8, 3/8, 5/8, 7/8; … of the distribution, each value once; ends when a level has nothing new.

    Multiples of a step without bounds: all that lie inside the level's range, as soon as they are fewer than that.
    """

    def __init__(self, dimension: Real) -> None:
        self._dimension = dimension
        self._points: dict[float, None] = {}
        self._order: list[float] = []
        self._is_exhausted = False

    @property
    def count(self) -> int:
        return len(self._order)

    def refine(self, level: int) -> None:
        if self._is_exhausted:
            return
        multiples = self._multiples(level)
        self._points.update(dict.fromkeys(self._halves(level) if multiples is None else multiples))
        # the range of multiples widens with the level, whether or not there is one in what was added
        self._is_exhausted = multiples is None and len(self._points) == len(self._order)
        self._order = list(self._points)

    def point(self, index: int) -> object:
        return self._order[index]

    def _halves(self, level: int) -> Iterator[float]:
        return (self._dimension.quantile(_half(index)) for index in range(_halves(level - 1), _halves(level)))

    def _multiples(self, level: int) -> Iterator[float] | None:
        """The multiples of the step as quantiles; None: there are no fewer of them than halves."""
        step, quantile = self._dimension.step, self._dimension.quantile
        if step is None:
            return None
        edge = math.ldexp(1.0, -(level + 1))
        low, high = quantile(edge), quantile(1 - edge)
        if (high - low) / step >= _halves(level):
            return None
        return (multiple * step for multiple in range(round(low / step), round(high / step) + 1))


def _axis(place: PlacedDimension) -> _Finite | _Infinite:
    dimension = place.dimension
    if dimension.size is not None:
        return _Finite(place, dimension.size)
    assert isinstance(dimension, Real)
    return _Infinite(dimension)


def _halves(level: int) -> int:
    """The number of points up to that level."""
    return 2 ** (level + 1) - 1  # type: ignore[no-any-return]  # a whole number, as no level is below 0


def _half(index: int) -> float:
    """The point of an index: 0 → 1/2, 1 → 1/4, 2 → 3/4, 3 → 1/8, …"""
    level = (index + 1).bit_length() - 1
    return (2 * (index + 1 - (1 << level)) + 1) / (2 << level)
