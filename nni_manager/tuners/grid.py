"""GridSearch: every combination once.

Finite dimensions are enumerated completely. The others are halved repeatedly: first the median, then the quartiles,
then the eighths… Such a grid contains the coarser ones, so all known trials are remembered and skipped. That memory is
the whole state: a restarted tuner goes through the grid from its beginning and skips the recorded trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nni_manager.domain.space.dimension import Real
from nni_manager.domain.space.grid import Grid, finite_grid
from nni_manager.domain.space.search_space import PlacedDimension, SearchSpace, parse
from nni_manager.domain.space.tried import Identify, Tried, identify_in
from nni_manager.tuners.contract import Data, NoMoreProposals, Pending, Result, Tuner

#: Finer than this, floating-point numbers no longer differ.
_LEVELS = 50


class GridSearch(Tuner):
    """Ends when all combinations were proposed; with a continuous dimension practically never."""

    proposes_ahead = True

    def __init__(self) -> None:
        self._space = SearchSpace(places=())
        self._tried = Tried()
        self._untried: Iterator[dict[str, object]] = iter(())

    def update_search_space(self, search_space: object) -> None:
        self._space = parse(search_space)
        identify = identify_in(self._space)
        self._tried.change_space(identify)
        self._begin(identify)

    def propose(self, parameter_id: int) -> dict[str, object]:
        for parameters in self._untried:
            self._tried.add(parameters, parameter_id)
            return parameters
        raise NoMoreProposals(permanently=True)

    def learn(self, result: Result) -> None:
        self._tried.end(result.parameters, result.parameter_id)

    def adopt(self, pending: Pending) -> None:
        self._tried.add(pending.parameters, pending.parameter_id)

    def import_data(self, data: Data) -> None:
        self._tried.add_results(data)

    @property
    def withdraws(self) -> bool:
        return True

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        self._tried.withdraw(parameter_ids)
        self._begin(identify_in(self._space))

    def state(self) -> dict[str, object]:
        return {"seen": self._tried.count}

    def _begin(self, identify: Identify) -> None:
        grid = finite_grid(self._space)
        if grid is None or any(place.dimension.size is None for place in self._space.places):
            self._untried = (one for one in combinations(self._space) if identify(one) not in self._tried)
        else:
            self._untried = self._tried.untried(grid)


def combinations(space: SearchSpace) -> Iterator[dict[str, object]]:
    """All combinations on ever finer grids; finer grids repeat those of coarser ones."""
    axes = {place.key: _axis(place) for place in space.places if not place.branches}
    grid = Grid(space, axes)
    before = 0
    for level in range(_LEVELS):
        for axis in axes.values():
            axis.refine(level)
        count = grid.count()
        if count == before:
            continue  # nothing became finer at this level
        yield from map(grid.point, range(count))
        before = count


class _Finite:
    """All values from the start."""

    def __init__(self, place: PlacedDimension, size: int) -> None:
        self._dimension = place.dimension
        self.count = size

    def refine(self, level: int) -> None:
        """Does nothing: the values of a choice cannot be refined."""

    def point(self, position: int) -> object:
        return self._dimension.point(position)


class _Infinite:
    """1/2; 1/4, 3/4; 1/8, 3/8, 5/8, 7/8; … of the distribution, each value once; ends when a level has nothing new.

    For multiples of an unbounded step: all inside the level's range, as soon as they are fewer than the fractions.
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
        # the range of multiples widens with the level, even if the addition contains none
        self._is_exhausted = multiples is None and len(self._points) == len(self._order)
        self._order = list(self._points)

    def point(self, position: int) -> object:
        return self._order[position]

    def _halves(self, level: int) -> Iterator[float]:
        return (self._dimension.quantile(_half(index)) for index in range(_halves(level - 1), _halves(level)))

    def _multiples(self, level: int) -> Iterator[float] | None:
        """The multiples of the step as quantiles; None: they are not fewer than the fractions."""
        step, quantile = self._dimension.step, self._dimension.quantile
        if step is None:
            return None
        edge = math.ldexp(1.0, -(level + 1))
        low, high = quantile(edge), quantile(1 - edge)
        if (high - low) / step >= _halves(level):
            return None
        first, last = map(self._dimension.multiples, (low, high))
        return map(self._dimension.multiple, range(first, last + 1))


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
