"""What tests of tuners that learn have in common: a function to search, and trials without a result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.contract import Result, Tuner
from nni_manager.tuners.testing import dimension, result

#: A space with numbers, a choice and branches, and where its smallest loss, 0, is.
SPACE: dict[str, Any] = {
    "x": dimension("uniform", -5, 5),
    "y": dimension("loguniform", 1e-4, 1),
    "model": dimension("choice", {"_name": "flat"}, {"_name": "deep", "layers": dimension("randint", 1, 9)}),
}


def loss(parameters: Any) -> float:
    model = parameters["model"]
    branch = abs(model["layers"] - 4) / 4 if model["_name"] == "deep" else 1.0
    return float(abs(parameters["x"] - 2) / 5 + abs(math.log10(parameters["y"]) + 2) / 4 + branch)


def mean_best(make: Callable[[int], Tuner], *, sign: float = 1.0, proposals: int = 40, seeds: int = 6) -> float:
    """The mean over seeds of the least loss in this many trials; `sign` of -1: the tuner gets the negative loss."""
    return sum(_best(make(seed), sign, proposals) for seed in range(seeds)) / seeds


def _best(tuner: Tuner, sign: float, proposals: int) -> float:
    tuner.update_search_space(SPACE)
    losses = []
    for number in range(proposals):
        parameters = tuner.propose(number)
        losses.append(loss(parameters))
        tuner.learn(result(number, parameters, sign * losses[-1]))
    return min(losses)


def ended(number: int, parameters: object, status: TrialStatus) -> Result:
    """A trial without a final result."""
    return Result(parameter_id=number, parameters=parameters, value=None, status=status, trial_id=f"t{number}")
