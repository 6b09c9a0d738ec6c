"""One search: a tuner, a problem, and 60 sequential or concurrent trials."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.contract import Result, Tuner
from tests.benchmarks.tuners.problem import Problem

TRIALS = 60
MakeTuner = Callable[[int], Tuner]


def search(make: MakeTuner, problem: Problem, seed: int, concurrency: int, trials: int = TRIALS) -> float:
    """The smallest regret of `trials` trials; results arrive in an order drawn from `seed`."""
    source = random.Random(f"{seed}/{concurrency}")
    tuner, running, best = make(seed), {}, math.inf
    tuner.update_search_space(problem.space)
    tuner.expect(trials=trials, concurrency=concurrency)
    for number in range(trials):
        running[number] = json.loads(json.dumps(tuner.propose(number)))
        best = min(best, problem.regret(running[number]))
        if len(running) == concurrency:
            done = source.choice(list(running))
            tuner.learn(_result(done, running.pop(done), problem, source))
    return best


def _result(number: int, parameters: object, problem: Problem, source: random.Random) -> Result:
    value = problem.reported(parameters, source)
    return Result(
        parameter_id=number, parameters=parameters, value=value, status=TrialStatus.SUCCEEDED, trial_id=f"t{number}"
    )
