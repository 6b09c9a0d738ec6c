"""The digits example on each cluster platform: its daemon is killed, then it is stopped and resumed.

Every trial has the result of its own parameters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.digits_services import CONFIGS, SERVICES, Service, example, image, small_image
from tests.fakes import sandbox
from tests.live_daemon import LISTENING, Daemon, assert_gone, picked, running_daemon
from tests.thorough import besides
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]
#: NNI_DIGITS_TRIALS=16: the number in the example.
TRIALS = int(os.environ.get("NNI_DIGITS_TRIALS", "2"))
EPOCHS = 15
#: The service that `make test` runs.
_CLUSTER = "kubeflow"
#: Services with the real scikit-learn, which takes most of a trial's time: one service, or all if there are many
#: trials.
_REAL = ("openpai",) if TRIALS == 2 else tuple(SERVICES)
Images = Callable[[bool], dict[str, str]]
#: The example without nni_manager: prints the result of each epoch.
_ALONE = """
import json, runpy, sys, types
told, nni = [], types.ModuleType("nni")
nni.get_next_parameter = lambda: json.loads(sys.argv[2])
nni.report_intermediate_result, nni.report_final_result = told.append, lambda value: None
sys.modules["nni"] = nni
runpy.run_path(sys.argv[1], run_name="__main__")
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Variables of the images, with or without scikit-learn."""
    folder = tmp_path_factory.mktemp("image")
    return cache(lambda is_real: image(folder / "packages") if is_real else small_image(folder / "small"))


@pytest.mark.parametrize("platform", [_CLUSTER, *besides(*(name for name in SERVICES if name != _CLUSTER))])
def test_digits_search_survives_kill_stop_and_resume(
    tmp_path: Path, platform: str, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = images(platform in _REAL)
    monkeypatch.setenv(sandbox.IMAGE, json.dumps(packages))
    (far := tmp_path / "far").mkdir()
    with SERVICES[platform](far, monkeypatch, tmp_path / "data") as service:
        with running_daemon(tmp_path, *LISTENING) as daemon:
            _run_to_the_end(daemon, platform, service, packages["PYTHONPATH"])


def _run_to_the_end(daemon: Daemon, platform: str, service: Service, packages: str) -> None:
    id = daemon.create(_config(platform, service), CONFIGS)
    _kill_in_the_middle(daemon, id)
    _stop_in_the_middle(daemon, id, service)
    daemon.call("POST", f"/experiments/{id}/resume", json={})
    daemon.wait(id, "DONE", timeout_s=300)
    _check_results(daemon, id, packages)
    daemon.call("POST", f"/experiments/{id}/stop")
    _check_jobs(daemon, id, service)


def _config(platform: str, service: Service) -> dict[str, Any]:
    """The same proposals everywhere; one concurrent trial less than the total, so that one ends while others run."""
    config = example(platform)
    config["trainingService"] |= {"nniManagerIp": "127.0.0.1", **service.section}
    tuner = {"name": "TPE", "classArgs": {"optimize_mode": "maximize", "seed": 1}}
    most = min(config["trialConcurrency"], TRIALS - 1)
    return {**config, "maxTrialNumber": TRIALS, "trialConcurrency": most, "tuner": tuner}


def _kill_in_the_middle(daemon: Daemon, id: str) -> None:
    daemon.wait_for(id, lambda _: daemon.trials(id, status="RUNNING"), timeout_s=150)
    daemon.kill()
    daemon.start(*LISTENING)


def _stop_in_the_middle(daemon: Daemon, id: str, service: Service) -> None:
    """Kill the daemon between the ends of two trials."""

    def is_middle(_: dict[str, Any]) -> bool:
        return bool(daemon.trials(id, status="SUCCEEDED") and daemon.trials(id, status="RUNNING"))

    daemon.wait_for(id, is_middle, timeout_s=150)
    daemon.call("POST", f"/experiments/{id}/stop")
    daemon.wait(id, "STOPPED", timeout_s=150)
    until(lambda: all(service.jobs().values()), within_s=90)


def _check_results(daemon: Daemon, id: str, packages: str) -> None:
    trials = daemon.trials(id)
    assert [trial["status"] for trial in trials] == ["SUCCEEDED"] * TRIALS
    for trial in trials:
        stored = daemon.results(id, trial=trial["id"])
        own = [json.loads(one["result"]) for one in stored if one["attempt"] == trial["attempt"]]
        expected = _accuracies(json.dumps(trial["parameters"]), packages)
        assert own == [*expected, expected[-1]] and trial["finalValue"] == expected[-1]
        assert trial["intermediates"] == EPOCHS


def _check_jobs(daemon: Daemon, id: str, service: Service) -> None:
    """Check that each attempt has one job, and that all jobs and their processes have ended."""
    attempts = picked(daemon.attempts(id), "trialId", "number")
    until(lambda: all(service.jobs().values()), within_s=90)
    assert len(service.jobs()) == len(attempts) == len(set(attempts)), (service.jobs(), attempts)
    assert_gone(id, within_s=90)


@cache
def _accuracies(parameters: str, packages: str) -> list[float]:
    """Results of the example after each epoch, with these parameters and packages."""
    command = [sys.executable, "-c", _ALONE, str(CONFIGS / "digits" / "trial.py"), parameters]
    environment = {**os.environ, "PYTHONPATH": packages}
    told: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    return told
