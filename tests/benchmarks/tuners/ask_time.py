"""Duration of a proposal after many finished trials."""

from __future__ import annotations

import statistics
import time

from nni_manager.domain.trial_status import TrialStatus
from nni_manager.tuners.contract import Result
from tests.benchmarks.tuners import smooth
from tests.benchmarks.tuners.loop import MakeTuner

FINISHED = (100, 1_000, 10_000)
_ASKED = 20


def seconds(make: MakeTuner, finished: int) -> tuple[float, float]:
    """Median and maximum CPU time of the proposals of 20 more trials, each after the result of the previous one."""
    problem, tuner, times = smooth.rastrigin(1), make(1), []
    tuner.update_search_space(problem.space)
    known = [
        _result(number, {f"x{i}": (number * (7 + i)) % 1009 / 100.9 - 5 for i in range(10)})
        for number in range(finished)
    ]
    tuner.restore(history=known, unfinished=[], imported=[])
    for number in range(finished, finished + _ASKED):
        begin = time.process_time()
        parameters = tuner.propose(number)
        times.append(time.process_time() - begin)
        tuner.learn(_result(number, parameters))
    return statistics.median(times), max(times)


def _result(number: int, parameters: object) -> Result:
    value = smooth.rastrigin(1).regret(parameters)
    return Result(
        parameter_id=number, parameters=parameters, value=value, status=TrialStatus.SUCCEEDED, trial_id=f"t{number}"
    )
