"""The points of a search space with trials: proposed, resumed, imported, warm-started or given by a user.

Points that differ only by rounding are equal: values on a grid are compared by their positions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from nni_manager.domain.space.dimension import Dimension, Real
from nni_manager.domain.space.grid import FiniteGrid, finite_axis, finite_grid
from nni_manager.domain.space.parameters import text_of
from nni_manager.domain.space.search_space import SearchSpace

#: What points of a search space are the same by; None: the parameters are not of this space.
Identify = Callable[[object], Hashable | None]
#: Parts of a continuous dimension, within which values are the same.
_PARTS = 2.0**40


class Tried:
    """The tried points, including parameters outside the current search space, which may be in the next one."""

    def __init__(self) -> None:
        self._identify: Identify = lambda parameters: None
        self._texts: Counter[str] = Counter()
        #: Parameter id → text, of own proposals whose trials have not ended.
        self._own: dict[int, str] = {}
        #: Point of the current search space → how many have it.
        self._points: Counter[Hashable] = Counter()

    @property
    def count(self) -> int:
        """Number of distinct points of the current search space."""
        return len(self._points)

    def change_space(self, identify: Identify) -> None:
        self._identify, self._points = identify, Counter()
        for text, times in self._texts.items():
            self._count(json.loads(text), times)

    def __contains__(self, point: Hashable) -> bool:
        return point in self._points

    def add(self, parameters: object, parameter_id: int | None = None) -> None:
        """Note a trial or proposal; one with a known id counts once until its end."""
        if parameter_id in self._own:
            return
        text = text_of(parameters)
        if parameter_id is not None:
            self._own[parameter_id] = text
        self._texts[text] += 1
        self._count(parameters, 1)

    def end(self, parameters: object, parameter_id: int | None) -> None:
        """Note the end of a trial."""
        self.add(parameters, parameter_id)
        if parameter_id is not None:
            del self._own[parameter_id]

    def add_results(self, data: Sequence[Mapping[str, object]]) -> None:
        """Note imported results, objects with ``parameter``."""
        for entry in data:
            self.add(entry.get("parameter"))

    def withdraw(self, parameter_ids: Sequence[int]) -> None:
        """Forget proposals that do not become trials."""
        for text in [self._own.pop(number) for number in parameter_ids if number in self._own]:
            self._texts[text] -= 1
            self._count(json.loads(text), -1)
        self._texts, self._points = +self._texts, +self._points

    def untried(self, grid: FiniteGrid) -> Iterator[dict[str, object]]:
        """The points of the grid without a trial, checked at their turn, in order."""
        return (grid.point(rank) for rank in range(grid.count()) if rank not in self._points)

    def _count(self, parameters: object, times: int) -> None:
        point = self._identify(parameters)
        if point is not None:
            self._points[point] += times


def identify_in(space: SearchSpace) -> Identify:
    """The identity of points: the rank in a finite search space, else the position or part of each value."""
    if (grid := finite_grid(space)) is not None:
        return grid.rank
    parts = {place.key: _part_of(place.dimension) for place in space.places}

    def identify(parameters: object) -> Hashable | None:
        picks = space.picks(parameters)
        return None if picks is None else tuple((key, parts[key](value)) for key, value in picks.items())

    return identify


def _part_of(dimension: Dimension) -> Callable[[object], Hashable]:
    if isinstance(dimension, Real) and dimension.step is not None:
        return lambda value: dimension.multiples(float(value))  # type: ignore[arg-type]  # a number, as it is contained
    if isinstance(dimension, Real):
        return lambda value: round(dimension.unit(value) * _PARTS)
    axis = finite_axis(dimension)
    assert axis is not None
    return axis.position
