"""Search spaces as arrays: one row for each set of parameters, one column for each dimension.

A row has the places of values in the unit interval (`Dimension.unit`), and 0.5 where a dimension does not exist.
`settle` moves rows to the places of possible values; distances are measured between `features`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nni_manager.domain.space.dimension import Choice, Integer
from nni_manager.domain.space.search_space import Key, PlacedDimension, SearchSpace

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int_]

#: Dimensions with more values than this are only rounded when their parameters are created.
_LARGEST_GRID = 4096


class Lattice:
    """The places of one search space."""

    def __init__(self, space: SearchSpace) -> None:
        self.places = space.places
        self._grids = [_grid(place) for place in space.places]
        #: Which dimensions have no order, and the distance of neighbouring values of the others; 0: continuous.
        self.categories = np.array([_is_category(place) for place in space.places], dtype=bool)
        self.least_steps = np.array([_least_step(place) for place in space.places])
        #: For each feature the index of its dimension: an index of a length scale.
        widths = [_options(place) if _is_category(place) else 1 for place in space.places]
        self.groups: Indices = np.array([column for column, width in enumerate(widths) for _ in range(width)], int)

    def rows(self, units: Sequence[Mapping[Key, float]]) -> Array:
        made = [[one.get(place.key, 0.5) for place in self.places] for one in units]
        return np.array(made, dtype=float).reshape(len(made), len(self.places))

    def units(self, row: Array) -> dict[Key, float]:
        return {place.key: float(value) for place, value in zip(self.places, row, strict=True)}

    def settle(self, rows: Array) -> Array:
        """The nearest rows with possible parameters."""
        settled = np.clip(rows, 0.0, 1.0)
        exists: dict[Key, Mask] = {(): np.ones(len(rows), dtype=bool)}
        for column, place in enumerate(self.places):
            here = exists[place.parent]
            settled[:, column] = np.where(here, self._rounded(column, settled[:, column]), 0.5)
            for branch in range(len(place.branches)):
                taken = np.floor(settled[:, column] * len(place.branches)) == branch
                exists[*place.key, branch] = here & taken
        return settled

    def features(self, rows: Array) -> Array:
        """Coordinates in which different categories have distance one, like the ends of a number's range."""
        columns = [self._feature(column, rows[:, column]) for column in range(len(self.places))]
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(rows), 0))

    def _feature(self, column: int, values: Array) -> Array:
        place = self.places[column]
        if not _is_category(place):
            return values[:, None]
        options = _options(place)
        picked = np.minimum((values * options).astype(int), options - 1)
        return np.asarray(np.eye(options)[picked] / np.sqrt(2))

    def _rounded(self, column: int, values: Array) -> Array:
        dimension = self.places[column].dimension
        if isinstance(dimension, Choice | Integer):
            return (np.minimum(np.floor(values * dimension.size), dimension.size - 1) + 0.5) / dimension.size
        grid = self._grids[column]
        if grid is None:
            return values
        return grid[np.searchsorted((grid[1:] + grid[:-1]) / 2, values)]


def _grid(place: PlacedDimension) -> Array | None:
    dimension = place.dimension
    if isinstance(dimension, Choice | Integer) or dimension.size is None or dimension.size > _LARGEST_GRID:
        return None
    return np.array([dimension.unit(dimension.point(index)) for index in range(dimension.size)])


def _least_step(place: PlacedDimension) -> float:
    size = place.dimension.size
    return 1.0 / size if size is not None and size <= _LARGEST_GRID else 0.0


def _is_category(place: PlacedDimension) -> bool:
    """Whether a choice has no order, unlike ascending numbers."""
    return isinstance(place.dimension, Choice) and not _ascends(place.dimension.options)


def _ascends(options: tuple[object, ...]) -> bool:
    if len(options) < 3 or not all(isinstance(one, int | float) and not isinstance(one, bool) for one in options):
        return False
    numbers = [float(one) for one in options if isinstance(one, int | float)]
    return sorted(set(numbers)) == numbers


def _options(place: PlacedDimension) -> int:
    assert isinstance(place.dimension, Choice)
    return place.dimension.size
