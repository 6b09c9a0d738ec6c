"""Comparison tuners: Optuna's own study loop with two samplers, and upstream's TPE in its own Python."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nni_manager.domain.space.search_space import parse
from nni_manager.tuners.contract import Data, Result, Tuner

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

#: Python of an environment with `nni`, created by `make nni3`.
_PYTHON = Path(__file__).parents[3] / ".venvs" / "nni3" / "bin" / "python"
#: Serves tuners of NNI in sequence: answers each line of JSON with another.
_SERVER = """
import json, logging, sys
answers, sys.stdout = sys.stdout, sys.stderr
logging.disable(logging.CRITICAL)
from nni.algorithms.hpo.tpe_tuner import TpeTuner
for line in sys.stdin:
    verb, number, value = json.loads(line)
    answer = None
    if verb == "new":
        tuner, proposed = TpeTuner("minimize", seed=number), {}
        tuner.update_search_space(value)
    elif verb == "ask":
        answer = proposed[number] = tuner.generate_parameters(number)
    else:
        if value is not None:
            tuner.receive_trial_result(number, proposed[number], value)
        tuner.trial_end(number, value is not None)
    print(json.dumps(answer), file=answers, flush=True)
"""


class _Rival(Tuner):
    """A tuner with only proposals and finite results."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def import_data(self, data: Data) -> None:
        raise NotImplementedError

    def state(self) -> dict[str, object]:
        return {}


class OptunaLoop(_Rival):
    """`ask` and `tell` of one study with Optuna's default sampler."""

    def update_search_space(self, search_space: object) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        assert isinstance(search_space, Mapping)
        self._space = search_space
        self._study = optuna.create_study(sampler=self._sampler())
        self._asked: dict[int, Trial] = {}

    def propose(self, parameter_id: int) -> object:
        self._asked[parameter_id] = self._study.ask()
        return _suggested(self._asked[parameter_id], self._space, "")

    def learn(self, result: Result) -> None:
        from optuna.trial import TrialState

        assert result.parameter_id is not None and isinstance(result.value, float | None)
        state = TrialState.FAIL if result.value is None else TrialState.COMPLETE
        self._study.tell(self._asked.pop(result.parameter_id), result.value, state)

    def _sampler(self) -> BaseSampler:
        from optuna.samplers import TPESampler

        return TPESampler(seed=self._seed)


class OptunaGP(OptunaLoop):
    """The same with Optuna's Gaussian process, for results with noise. Needs torch."""

    def _sampler(self) -> BaseSampler:
        from optuna.samplers import GPSampler

        return GPSampler(seed=self._seed, warn_independent_sampling=False)


def _suggested(trial: Trial, space: Mapping[str, Any], prefix: str) -> dict[str, object]:
    return {name: _value(trial, f"{prefix}{name}", **entry) for name, entry in space.items() if name != "_name"}


def _value(trial: Trial, name: str, _type: str, _value: list[Any]) -> object:
    if _type == "choice":
        option = _value[trial.suggest_categorical(name, range(len(_value)))]
        if not isinstance(option, Mapping):
            return option
        return {"_name": option["_name"], **_suggested(trial, option, f"{name}/{option['_name']}/")}
    if _type == "randint":
        return trial.suggest_int(name, _value[0], _value[1] - 1)
    if _type in ("uniform", "quniform", "loguniform"):
        step = _value[2] if _type == "quniform" else None
        return trial.suggest_float(name, _value[0], _value[1], step=step, log=_type == "loguniform")
    [place] = parse({name: {"_type": _type, "_value": _value}}).places
    return place.dimension.quantile(trial.suggest_float(name, 0.0, 1.0))  # Optuna lacks such distributions


class UpstreamTPE(_Rival):
    """TPE of the real `nni`, with its defaults."""

    def update_search_space(self, search_space: object) -> None:
        _ask("new", self._seed, search_space)

    def propose(self, parameter_id: int) -> object:
        return _ask("ask", parameter_id, None)

    def learn(self, result: Result) -> None:
        assert result.parameter_id is not None
        _ask("tell", result.parameter_id, result.value)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """One server per process of the benchmark; it ends with the pipe."""
    return subprocess.Popen([_PYTHON, "-c", _SERVER], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(*words: object) -> Any:
    process = _server()
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps(words), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


RIVALS = {"Optuna's loop": OptunaLoop, "Optuna's GPSampler": OptunaGP, "NNI's TPE": UpstreamTPE}


def missing(name: str) -> str:
    """What the tuner needs and this machine lacks; empty: nothing."""
    if name == "Optuna's GPSampler" and importlib.util.find_spec("torch") is None:
        return "torch, with `pip install torch`"
    if name == "NNI's TPE" and not _PYTHON.exists():
        return "NNI, with `make nni3`"
    return ""
