"""Curvefitting: a trial is stopped if its learning curve will hardly reach the best final result (Domhan et al. 2015,
*Speeding up automatic hyperparameter optimization of deep neural networks by extrapolation of learning curves*).

The curve is predicted as the weighted combination of parametric curves of that paper. Each is ``a + b g(step)`` with a
shape g: powers (pow3, pow4), exponentials (exp4, Janoschek, Weibull), Hill's and Morgan-Mercer-Flodin's curve, inverse
logarithms, the logarithm, and a constant. Shapes are taken from a grid instead of the paper's random walk; a and b are
fitted by least squares, and a combination's weights are the shapes' probabilities given the values so far. As in the
paper, a curve that gets worse has weight 0, and a trial is stopped if the probability of reaching the threshold is
below 0.05.

A value that is not a finite number counts as a step, but is left out of the fit. A trial that did not succeed, or whose
last value is not finite, does not change the threshold.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from nni_manager.assessors.contract import Assessor, numbers_of, places_of
from nni_manager.domain.metrics import OptimizeModeName

if TYPE_CHECKING:
    import numpy

#: Probability of reaching the threshold below which a trial is stopped.
_HOPELESS = 0.05
#: Minimum number of values of a fit: two numbers are fitted, and a residual is needed.
_LEAST = 4
#: Noise of a value, as a share of the range of the values so far, below which a fit counts as exact.
_NOISE = 0.01
_POWERS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0)
_SHIFTS = (0.0, 1.0, 3.0, 10.0)
#: As shares of the target step.
_SCALES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
_SLOPES = (0.5, 0.75, 1.0, 1.5, 2.0)
#: Minimum divisor: smaller numbers are inexact, and numpy 1.26 warns about dividing by them.
_TINY = sys.float_info.min


class Curvefitting(Assessor):
    """`epoch_num`: the step of a trial's final result, which is predicted. `start_step`: first judged step; `gap`:
    steps between judgements. `threshold`: share of the best final result to reach, such as 0.95 of an accuracy; of a
    result to be minimized, correspondingly worse."""

    def __init__(
        self,
        *,
        optimize_mode: OptimizeModeName = "maximize",
        epoch_num: Annotated[int, Ge(1)] = 20,
        start_step: Annotated[int, Ge(0)] = 6,
        threshold: Annotated[float, Gt(0)] = 0.95,
        gap: Annotated[int, Ge(1)] = 1,
    ) -> None:
        #: Factor that makes greater values better.
        self._sign = -1.0 if optimize_mode == "minimize" else 1.0
        self._target = epoch_num
        self._start_step = start_step
        self._threshold = threshold
        self._gap = gap
        #: The best last value of the succeeded trials; None: there is none yet.
        self._best: float | None = None

    def judge(self, trial_id: str, history: Sequence[object], steps: Sequence[int] | None = None) -> bool:
        places = places_of(history, steps)
        step = next(iter(places[-1:]), 0)
        is_due = self._start_step <= step < self._target and (step - self._start_step) % self._gap == 0
        if self._best is None or not is_due:
            return True
        values = zip(places, numbers_of(history, self._sign), strict=True)
        points = [(place, value) for place, value in values if math.isfinite(value)]
        return len(points) < _LEAST or chance(points, self._target, self._bar(self._best)) >= _HOPELESS

    def trial_end(
        self, trial_id: str, success: bool, history: Sequence[object], steps: Sequence[int] | None = None
    ) -> None:
        last = next(iter(numbers_of(history[-1:], self._sign)), math.nan)
        if success and math.isfinite(last):
            self._best = last if self._best is None else max(self._best, last)

    def _bar(self, best: float) -> float:
        """The value that a trial must reach; the distance to the best is a share of its size, with any sign."""
        return best - (1 - self._threshold) * abs(best)


def chance(points: Sequence[tuple[int, float]], target: int, bar: float) -> float:
    """The probability that a curve reaches `bar` at the target step; greater values are better.

    `points`: (1-based step, value) of the curve so far, `_LEAST` at least, all finite.
    """
    import numpy

    steps, values = (numpy.array(column, dtype=float) for column in zip(*points, strict=True))
    size = max(float(abs(values).max()) or 1.0, _TINY)
    weights, means, deviations = _predictions(steps, values / size, target)
    bar = bar / size
    ends = zip(means.tolist(), deviations.tolist(), strict=True)  # numpy's own numbers warn about a distant bar
    probabilities = [0.5 * math.erfc((bar - mean) / (deviation * math.sqrt(2))) for mean, deviation in ends]
    return float(weights @ numpy.array(probabilities))


def _predictions(steps: Any, values: Any, target: int) -> tuple[Any, Any, Any]:
    """Weight, predicted value and its standard deviation, of each parametric curve; values are from -1 to 1."""
    import numpy

    count = len(steps)
    shapes, goals, priors = _shapes(target)
    known = shapes[:, steps.astype(int) - 1]
    centred, middle = known - known.mean(axis=1, keepdims=True), values - values.mean()
    spread = numpy.maximum((centred**2).sum(axis=1), 1e-300)
    # shapes increase, so that a negative factor is a curve that gets worse
    factors = numpy.maximum((centred @ middle) / spread, 0.0)
    noise = (_NOISE * (values.max() - values.min()) + 1e-9) ** 2
    squares = ((middle - factors[:, None] * centred) ** 2).sum(axis=1) + count * noise
    ahead = goals - known.mean(axis=1)
    variances = squares / max(count - 3, 1) * (1 + 1 / count + ahead**2 / spread)
    logarithms = priors - (count - 2) / 2 * numpy.log(squares)
    weights = numpy.exp(logarithms - logarithms.max())
    return weights / weights.sum(), values.mean() + factors * ahead, numpy.sqrt(variances)


@lru_cache(maxsize=8)
def _shapes(target: int) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Each shape at the steps 1 to `target`, at `target`, and the logarithm of its prior probability.

    All families are equally probable, and all shapes within a family.
    """
    import numpy

    steps = numpy.arange(1, target + 1, dtype=float)
    scaled = [(steps / (scale * target)) ** slope for scale in _SCALES for slope in _SLOPES]
    families = [
        [-((steps + shift) ** -power) for shift in _SHIFTS for power in _POWERS],
        [-numpy.exp(-one) for one in scaled],
        [-1 / (1 + one) for one in scaled],
        [-1 / numpy.log(steps + 1)],
        [numpy.log(steps + 1)],
        [numpy.zeros(target)],
    ]
    rows = numpy.array([shape for family in families for shape in family])
    priors = numpy.concatenate([numpy.full(len(family), -math.log(len(family))) for family in families])
    return rows, rows[:, -1], priors
