"""Points of a search space as arrays, for models: one column per dimension, whether or not it exists in a point.

A model gets features: a number unchanged, a choice as one column per option. A dimension that does not exist in a point
always has the same value, as in SMAC (F. Hutter, H. Hoos, K. Leyton-Brown, LION 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from nni_manager.domain.space.dimension import Choice
from nni_manager.domain.space.search_space import PlacedDimension, SearchSpace
from nni_manager.tuners.learning import Units

#: Shape (points, columns), or (points,).
Array = Any

#: With more values than this, neighbours hardly differ.
_FINE = 1000
#: Standard deviation of a change, as a share of the range (Hutter et al.).
_STEP = 0.2


class Encoding:
    """`points`: places in the unit interval, shape (points, dimensions)."""

    def __init__(self, space: SearchSpace) -> None:
        self.places = space.places
        self._columns = {place.key: number for number, place in enumerate(space.places)}
        self._grids = [_grid(place) for place in space.places]

    def points(self, trials: Sequence[Units]) -> Array:
        """One point per trial; dimensions that do not exist are in the middle."""
        rows = [[units.get(place.key, 0.5) for place in self.places] for units in trials]
        return numpy.array(rows, dtype=float).reshape(len(rows), len(self.places))

    def units(self, point: Array) -> Units:
        """The places of one point, shape (dimensions,); including dimensions that do not exist in it."""
        return {place.key: float(unit) for place, unit in zip(self.places, point, strict=True)}

    def snapped(self, points: Array) -> Array:
        """The nearest possible points: at whole numbers, at multiples of the step."""
        columns = [_snap(points[:, number], grid) for number, grid in enumerate(self._grids)]
        return numpy.stack(columns, axis=1) if columns else points

    def features(self, points: Array) -> Array:
        """The features of snapped points for a model, shape (points, features)."""
        exists = self._exists(points)
        return numpy.concatenate(
            [self._features(number, points[:, number], exists[:, number]) for number in range(len(self.places))], axis=1
        )

    def neighbours(self, points: Array, source: Any) -> Array:
        """Each point with one of its dimensions changed: a number by a little, a choice to any option."""
        rows, column = numpy.arange(len(points)), self._existing(points, source)
        redrawn = source.random(len(points))
        near = points[rows, column] + source.normal(0, _STEP, len(points))
        is_choice = numpy.array([isinstance(place.dimension, Choice) for place in self.places])
        changed = points.copy()
        changed[rows, column] = numpy.where(is_choice[column], redrawn, numpy.clip(near, 0, 1))
        return self.snapped(changed)

    def shaken(self, points: Array, step: float, source: Any) -> Array:
        """Each point with all of its numbers changed, by `step` (standard deviation, as a share of the range)."""
        moved = numpy.clip(points + source.normal(0, step, points.shape), 0, 1)
        is_choice = numpy.array([isinstance(place.dimension, Choice) for place in self.places])
        return self.snapped(numpy.where(is_choice, points, moved))

    def _features(self, number: int, column: Array, exists: Array) -> Array:
        dimension = self.places[number].dimension
        if not isinstance(dimension, Choice):
            return numpy.where(exists, column, 0.5)[:, None]
        options = numpy.minimum((column * dimension.size).astype(int), dimension.size - 1)
        return (options[:, None] == numpy.arange(dimension.size)) * exists[:, None] * 1.0

    def _exists(self, points: Array) -> Array:
        """Which dimensions exist in which point; a dimension's condition precedes it."""
        exists = numpy.ones(points.shape, dtype=bool)
        for number, place in enumerate(self.places):
            if place.parent:
                choice, branch = self._columns[place.parent[:-1]], place.parent[-1]
                size = self.places[choice].dimension.size
                assert size is not None
                taken = numpy.minimum((points[:, choice] * size).astype(int), size - 1)
                exists[:, number] = exists[:, choice] & (taken == branch)
        return exists

    def _existing(self, points: Array, source: Any) -> Array:
        """A random existing dimension of each point."""
        return numpy.argmax(source.random(points.shape) * self._exists(points), axis=1)


def _grid(place: PlacedDimension) -> Array | None:
    """The places of all values, in order; None: too many."""
    dimension = place.dimension
    if dimension.size is None or dimension.size > _FINE:
        return None
    return numpy.array([dimension.unit(dimension.point(index)) for index in range(dimension.size)])


def _snap(column: Array, grid: Array | None) -> Array:
    if grid is None:
        return column
    return grid[numpy.searchsorted((grid[1:] + grid[:-1]) / 2, column)]
