"""The compared assessors: ours, upstream's in its own Python, and Optuna's pruners."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nni_manager.assessors import registry
from nni_manager.domain.algorithm import AlgorithmSpec
from tests.benchmarks.assessors.replay import Curve

#: Serves one assessor of NNI: answers each line of JSON with another.
_UPSTREAM = """
import importlib, json, logging, sys
answers, sys.stdout = sys.stdout, sys.stderr
logging.disable(logging.CRITICAL)
module, name, arguments = sys.argv[1:]
from nni.assessor import AssessResult
assessor = getattr(importlib.import_module("nni.algorithms.hpo." + module), name)(**json.loads(arguments))
for line in sys.stdin:
    verb, trial, value = json.loads(line)
    if verb == "judge":
        answer = assessor.assess_trial(trial, value) is not AssessResult.Bad
    else:
        answer = assessor.trial_end(trial, value)
    print(json.dumps(answer), file=answers, flush=True)
"""


class Ours:
    """An assessor of the registry."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self._assessor = registry.create(AlgorithmSpec(name=name, class_args=arguments))

    def goes_on(self, trial: str, history: Curve) -> bool:
        return self._assessor.judge(trial, history)

    def end(self, trial: str, history: Curve, *, is_whole: bool) -> None:
        self._assessor.trial_end(trial, is_whole, history)


class OptunaPruner:
    def __init__(self, name: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize", pruner=getattr(optuna.pruners, name)())
        self._trials: dict[str, Any] = {}

    def goes_on(self, trial: str, history: Curve) -> bool:
        asked = self._trials.get(trial) or self._trials.setdefault(trial, self._study.ask())
        asked.report(history[-1], len(history))
        return not asked.should_prune()

    def end(self, trial: str, history: Curve, *, is_whole: bool) -> None:
        from optuna.trial import TrialState

        state = TrialState.COMPLETE if is_whole else TrialState.PRUNED
        self._study.tell(self._trials[trial], history[-1] if is_whole else None, state=state)


class Upstream:
    """An assessor of the real `nni`, in a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def goes_on(self, trial: str, history: Curve) -> bool:
        return bool(self._ask("judge", trial, list(history)))

    def end(self, trial: str, history: Curve, *, is_whole: bool) -> None:
        self._ask("end", trial, is_whole)

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


@contextmanager
def upstream(python: Path, module: str, name: str, **arguments: Any) -> Iterator[Upstream]:
    """An assessor of NNI. `python`: of an environment with `nni`."""
    command = [str(python), "-c", _UPSTREAM, module, name, json.dumps(arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield Upstream(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
