"""Losses on a scale that a Gaussian process can describe.

Among the given scales the one with the greatest density of the losses themselves is chosen; for that the density of the
scaled ones is multiplied by the slope of the scale (E. Snelson, C. E. Rasmussen, Z. Ghahramani, "Warped Gaussian
Processes", 2003).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nni_manager.tuners.auto.lattice import Array

#: Offsets of the logarithm, in spreads of the better half; None: as they are.
_OFFSETS = (None, 1.0, 0.1)
#: Losses worse than so many spreads of the better half above the median are as bad as that.
_WORST = 4.0


class Warp:
    """One scale, made for the given losses: mean 0, deviation 1."""

    def __init__(self, losses: Array, offset: float | None) -> None:
        self._least, middle = float(np.min(losses)), float(np.median(losses))
        self._spread = max(middle - self._least, 1e-12 * max(abs(middle), abs(self._least)), 1e-300)
        self._offset = offset
        bent = self._bent(losses)
        self._mean, self._deviation = float(np.mean(bent)), max(float(np.std(bent)), 1e-12)
        self.log_slope = float(np.sum(self._log_slopes(losses))) - len(losses) * np.log(self._deviation)

    def __call__(self, losses: Array) -> Array:
        return (self._bent(losses) - self._mean) / self._deviation

    def _relative(self, losses: Array) -> Array:
        return np.minimum((losses - self._least) / self._spread, 1.0 + _WORST)

    def _bent(self, losses: Array) -> Array:
        relative = self._relative(losses)
        return relative if self._offset is None else np.log(relative + self._offset)

    def _log_slopes(self, losses: Array) -> Array:
        relative = self._relative(losses)
        return np.zeros_like(relative) if self._offset is None else -np.log(relative + self._offset)


def choices(losses: Array) -> Sequence[Warp]:
    return [Warp(losses, offset) for offset in _OFFSETS]
