"""One draw from each kind of dimension. `random_state`: a `numpy.random.RandomState`, or what has its methods."""

from __future__ import annotations

import math

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any


def choice(options: Any, random_state: Any) -> Any:
    """One of `options`, or of the numbers below it."""
    return random_state.choice(options)


def randint(lower: int, upper: int, random_state: Any) -> int:
    """A whole number from `lower` to below `upper`."""
    return random_state.randint(lower, upper)


def uniform(low: float, high: float, random_state: Any) -> float:
    """A number from `low` to `high`."""
    _require(high >= low, "The upper bound {} is below the lower bound {}.".format(high, low))
    return random_state.uniform(low, high)


def quniform(low: float, high: float, q: float, random_state: Any) -> float:
    """The same in steps of `q`, kept within the bounds."""
    return _clipped(_stepped(uniform(low, high, random_state), q), low, high)


def loguniform(low: float, high: float, random_state: Any) -> float:
    """A number whose logarithm is uniform."""
    _require(low > 0, "The lower bound {} is not positive.".format(low))
    return math.exp(uniform(math.log(low), math.log(high), random_state))


def qloguniform(low: float, high: float, q: float, random_state: Any) -> float:
    """The same in steps of `q`, kept within the bounds."""
    return _clipped(_stepped(loguniform(low, high, random_state), q), low, high)


def normal(mu: float, sigma: float, random_state: Any) -> float:
    """A number of the normal distribution."""
    return random_state.normal(mu, sigma)


def qnormal(mu: float, sigma: float, q: float, random_state: Any) -> float:
    """The same in steps of `q`."""
    return _stepped(normal(mu, sigma, random_state), q)


def lognormal(mu: float, sigma: float, random_state: Any) -> float:
    """A number whose logarithm is normal."""
    return math.exp(normal(mu, sigma, random_state))


def qlognormal(mu: float, sigma: float, q: float, random_state: Any) -> float:
    """The same in steps of `q`."""
    return _stepped(lognormal(mu, sigma, random_state), q)


def _stepped(value: float, q: float) -> float:
    return round(value / q) * q


def _clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)  # as NNI has it
