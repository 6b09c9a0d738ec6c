"""A user tuner, a (1+λ) evolution strategy: varies the best parameters so far, in smaller steps as they stay best."""

import math
import random

from nni.tuner import Tuner
from nni.utils import OptimizeMode, extract_scalar_reward

#: How often a single parameter is drawn again instead of varied: the way out of a corner, and the way between choices.
REDRAW = 0.1


class LocalSearchTuner(Tuner):
    """Knows `choice` without nesting, `uniform`, `quniform` and `loguniform`.

    Arguments: `optimize_mode`; `step`, the first step's size as a share of each range; `explore`, how many of the
    first proposals are drawn at random; `seed`.
    """

    def __init__(self, optimize_mode="maximize", step=0.25, explore=4, seed=None):
        self._sign = 1 if OptimizeMode(optimize_mode) is OptimizeMode.Maximize else -1
        self._step = step
        self._explore = explore
        self._random = random.Random(seed)
        self._space = {}
        self._best = None
        self._best_reward = -math.inf

    def update_search_space(self, search_space):
        self._space = {name: make_dimension(name, spec) for name, spec in search_space.items()}

    def generate_parameters(self, parameter_id, **kwargs):
        if self._best is None or self._explore > 0:
            self._explore -= 1
            positions = {name: self._random.random() for name in self._space}
        else:
            positions = {name: self._vary(name) for name in self._space}
        return {name: self._space[name].value(position) for name, position in positions.items()}

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        reward = self._sign * extract_scalar_reward(value)
        if reward > self._best_reward:
            self._best, self._best_reward = parameters, reward
            self._step = min(self._step * 1.5, 0.5)
        else:
            self._step = max(self._step * 0.9, 0.01)

    def import_data(self, data):
        for entry in data:
            self.receive_trial_result(None, entry["parameter"], entry["value"])

    def _vary(self, name):
        dimension = self._space[name]
        position = dimension.position(self._best[name])
        if self._random.random() < REDRAW:
            return self._random.random()
        if isinstance(dimension, Choice):  # its neighbours mean nothing
            return position
        return min(max(self._random.gauss(position, self._step), 0.0), 1.0)


def make_dimension(name, spec):
    """Raises ValueError for a type that this tuner does not know."""
    kind, arguments = spec["_type"], spec["_value"]
    if kind == "choice":
        return Choice(arguments)
    if kind in ("uniform", "quniform"):
        return Range(*arguments)
    if kind == "loguniform":
        return LogRange(*arguments)
    raise ValueError(f"{name}: LocalSearchTuner does not know the type {kind!r}; use TPE instead")


class Choice:
    """Maps positions from 0 to 1 to one of several values and back, as every dimension here."""

    def __init__(self, options):
        self._options = options

    def value(self, position):
        return self._options[min(int(position * len(self._options)), len(self._options) - 1)]

    def position(self, value):
        return (self._options.index(value) + 0.5) / len(self._options)


class Range:
    def __init__(self, low, high, quantum=None):
        self._low, self._high, self._quantum = low, high, quantum

    def value(self, position):
        value = self._low + position * (self._high - self._low)
        if self._quantum:
            value = round(value / self._quantum) * self._quantum
        return min(max(value, self._low), self._high)

    def position(self, value):
        return (value - self._low) / (self._high - self._low)


class LogRange:
    def __init__(self, low, high):
        self._exponent = Range(math.log(low), math.log(high))

    def value(self, position):
        return math.exp(self._exponent.value(position))

    def position(self, value):
        return self._exponent.position(math.log(value))
