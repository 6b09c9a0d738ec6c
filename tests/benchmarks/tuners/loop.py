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
    """The regret of the trial with the best reported result; infinite if all failed.

    `seed` also draws the order in which trials end.
    """
    source = random.Random(f"{seed}/{concurrency}")
    tuner, running = make(seed), {}
    tuner.update_search_space(problem.space)
    tuner.expect(trials=trials, concurrency=concurrency)
    best = (math.inf, math.inf)
    for number in range(trials):
        running[number] = json.loads(json.dumps(tuner.propose(number)))
        while len(running) == concurrency or (running and number == trials - 1):
            ended = source.choice(list(running))
            parameters = running.pop(ended)
            reported = problem.reported(parameters, source)
            if reported is not None:
                best = min(best, (reported, problem.regret(parameters)))
            tuner.learn(_result(ended, parameters, reported))
    return best[1]


def _result(number: int, parameters: object, value: float | None) -> Result:
    status = TrialStatus.FAILED if value is None else TrialStatus.SUCCEEDED
    return Result(parameter_id=number, parameters=parameters, value=value, status=status, trial_id=f"t{number}")
