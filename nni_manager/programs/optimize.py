"""`optimize`: a function as a trial."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import trial_runner
from nni_manager.client import caller
from nni_manager.programs import sent_function
from nni_manager.programs.experiment import Experiment

_NNI_CALL = Path(trial_runner.__file__).with_name("stand_in") / "nni_call.py"
#: A function of the parameters that returns its result, or yields results.
Function = Callable[[Any], Any]


def optimize(
    function: Function,
    space: Mapping[str, Any],
    *,
    trials: int,
    concurrency: int = 1,
    direction: Literal["minimize", "maximize"] = "minimize",
    tuner: Mapping[str, Any] | None = None,
    platform: str | Mapping[str, Any] = "local",
    code_directory: str | os.PathLike[str] | None = None,
    progress: bool = True,
    data_dir: str | os.PathLike[str] | None = None,
    manager: str | None = None,
    **fields: Any,
) -> Experiment:
    """Calls `function` with parameters from `space`, each call a trial of its own; returns the experiment when `trials`
    of them have ended.

    ::

        space = {"x": {"_type": "uniform", "_value": [-9, 9]}}
        found = nni_manager.optimize(lambda parameters: (parameters["x"] - 2) ** 2, space, trials=50)
        print(found.best)

    The function returns a number, a dict with the number in ``default``, or yields intermediate results. One that a
    module holds is imported by each trial, and the module's folder is sent; any other (of a notebook, of the program
    itself, a closure) is sent by cloudpickle (``pip install nni-manager[programs]``) and needs the same minor version
    of Python where it runs. `code_directory`: a folder that is sent with it. `platform`: ``local``, or a section
    `trainingService` of an experiment file. `tuner`: its section; not given: TPE. `fields`: others of an experiment
    file. Raises InvalidInput, before anything starts, for a function that cannot be sent; `Experiment.run` has the
    other errors.
    """
    is_elsewhere = caller.choose(None if data_dir is None else os.fspath(data_dir), manager).is_remote
    service = {"platform": platform} if isinstance(platform, str) else dict(platform)
    with tempfile.TemporaryDirectory(prefix="nni-manager-") as folder:
        sent = sent_function.prepare(function, Path(folder), code_directory)
        told = {
            "experiment_name": getattr(function, "__name__", "function"),
            "search_space": dict(space),
            "trial_command": f"{_program(service, is_elsewhere=is_elsewhere)} {shlex.quote(sent.what)}",
            "trial_code_directory": ".",
            "trial_concurrency": concurrency,
            "max_trial_number": trials,
            "tuner": tuner or {"name": "TPE", "class_args": {"optimize_mode": direction}},
            "training_service": service,
        }
        experiment = Experiment({**told, **fields}, directory=sent.folder, data_dir=data_dir, manager=manager)
        experiment.start(send_code=True)
    experiment.wait(progress=progress)
    experiment.stop()
    return experiment


def _program(service: Mapping[str, Any], *, is_elsewhere: bool) -> str:
    """What calls the function in a trial. On this machine it is this Python, which needs not look for the program.
    `is_elsewhere`: the manager may run on another machine, and ``local`` is that one."""
    if is_elsewhere or service.get("platform") != "local":
        return "python3 -m nni_call"
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(_NNI_CALL))}"
