"""The densities of BOHB: one kernel for each point, a product over the dimensions.

Numbers are places in the unit interval and have Gaussian kernels; choices are indices and have the kernel of Aitchison
and Aitken (Biometrika 63, 1976). The width in each dimension is ``1.06 * sigma * n ** (-1 / (4 + d))``, the normal
reference rule of statsmodels' `KDEMultivariate`, as used by BOHB's authors, and at least `min_bandwidth`.

Points are arrays of shape (n, d); a dimension that does not exist in a point is NaN until `filled` draws it.
"""

from __future__ import annotations

import numpy
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[numpy.float64]

#: Logarithm of the minimum density, 1e-32, so that quotients far from all points are defined.
_LEAST = -73.68
#: Width above which draws within the unit interval are practically uniform.
_WIDEST = 3.0


class Density:
    """`sizes`: number of options of each dimension, or 0 for a number."""

    def __init__(self, points: Array, sizes: list[int], min_bandwidth: float) -> None:
        count, dimensions = points.shape
        widths = 1.06 * points.std(axis=0) * count ** (-1.0 / (4 + dimensions))
        #: For choices at most the width at which all options are equal.
        most = numpy.array([(size - 1) / size if size else numpy.inf for size in sizes])
        self.points = points
        self.widths: Array = numpy.minimum(numpy.maximum(widths, min_bandwidth), most)
        self._sizes = sizes

    def logarithm(self, candidates: Array) -> Array:
        """The logarithm of the density at each candidate, at least that of 1e-32."""
        total = numpy.zeros((len(candidates), len(self.points)))
        with numpy.errstate(over="ignore", divide="ignore"):  # widths may be arbitrarily small
            for place, (size, width) in enumerate(zip(self._sizes, self.widths, strict=True)):
                ours, theirs = candidates[:, place, None], self.points[None, :, place]
                if size:
                    others = width / (size - 1) if size > 1 else 0.0
                    total += numpy.log(numpy.where(ours == theirs, 1 - width, others))
                else:
                    total -= 0.5 * ((ours - theirs) / width) ** 2 + numpy.log(width * numpy.sqrt(2 * numpy.pi))
            whole = numpy.logaddexp.reduce(total, axis=1) - numpy.log(len(self.points))
        bounded: Array = numpy.maximum(whole, _LEAST)
        return bounded

    def draw(self, count: int, factor: float, source: Generator) -> Array:
        """Points near those of the density; the widths of numbers are `factor` times as large."""
        drawn = self.points[source.integers(len(self.points), size=count)].copy()
        for place, (size, width) in enumerate(zip(self._sizes, self.widths, strict=True)):
            if size:
                redrawn = source.random(count) < width
                drawn[:, place] = numpy.where(redrawn, source.integers(size, size=count), drawn[:, place])
            else:
                drawn[:, place] = _near(drawn[:, place], min(factor * width, _WIDEST), source)
        return drawn


def filled(points: Array, sizes: list[int], source: Generator) -> Array:
    """The points with missing values replaced by those of another point, or by any value."""
    whole = points.copy()
    for place, size in enumerate(sizes):
        missing = numpy.isnan(points[:, place])
        there = points[~missing, place]
        count = int(missing.sum())
        if len(there):
            whole[missing, place] = source.choice(there, size=count)
        else:
            whole[missing, place] = source.integers(size, size=count) if size else source.random(count)
    return whole


def _near(centres: Array, width: float, source: Generator) -> Array:
    """Normally distributed around the centres, which are in the unit interval, and redrawn until inside it."""
    drawn = source.normal(centres, width)
    while (outside := (drawn < 0) | (drawn > 1)).any():
        drawn = numpy.where(outside, source.normal(centres, width), drawn)
    return drawn
