"""Losses on a scale that a Gaussian process can describe.

Among the given scales the one with the greatest density of the losses themselves is chosen; for that the density of the
scaled ones is multiplied by the slope of the scale (E. Snelson, C. E. Rasmussen, Z. Ghahramani, "Warped Gaussian
Processes", 2003).
"""

from __future__ import annotations

import numpy as np

from nni_manager.tuners.auto.lattice import Array

#: Offsets of the logarithm, in spreads of the better half of the losses; None: no logarithm.
OFFSETS: tuple[float | None, ...] = (None, 1.0, 0.1, 0.01)
#: What is worse than so many spreads of the better half counts as being as bad as that.
_WORST = 5.0


class Warp:
    """One scale, made for the given losses: on it they have mean 0 and deviation 1. Infinite ones are as the worst."""

    def __init__(self, losses: Array, offset: float | None) -> None:
        finite = losses[np.isfinite(losses)]
        least, middle = float(np.min(finite)), float(np.median(finite))
        # where the better half is all the same, whatever there is
        spread = max(middle - least, 1e-12 * max(abs(middle), abs(least), 1e-288))
        known = np.where(np.isfinite(losses), losses, float(np.max(finite)))
        relative = np.minimum((known - least) / spread, _WORST)
        bent = relative if offset is None else np.log(relative + offset)
        deviation = max(float(np.std(bent)), 1e-12)
        #: The losses on this scale.
        self.values: Array = (bent - float(np.mean(bent))) / deviation
        slopes = 0.0 if offset is None else -float(np.sum(np.log(relative + offset)))
        #: Sum of the logarithms of the scale's slope at each loss, up to what all scales of these losses share.
        self.log_slope = slopes - len(losses) * float(np.log(deviation))
