"""Draining and adding machines and removing a service, with daemon kills: no job is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import ENVIRONMENT
from tests.live_daemon import Daemon, assert_gone, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(90)]

TRIALS = 16


def test_services_are_added_and_removed_while_trials_run(daemon: Daemon, code: Path) -> None:
    first = {"platform": "scripted", "launch": "process", "channel": "pull"}
    second = {**first, "machines": [_machine("m1")]}
    report = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"sleep 1; {report}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 6,
        "maxTrialNumber": TRIALS,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": [{**first, "trialConcurrency": 2}, second],
    }
    id_ = daemon.create(config, code, ENVIRONMENT)
    daemon.wait_for(id_, lambda _: _places(daemon, id_) >= {"m1, place 0", "m1, place 1"})
    _change(daemon, id_, {**first, "trialConcurrency": 2}, {**second, "machines": [_machine("m2")]})
    daemon.wait_for(id_, lambda _: _places(daemon, id_) >= {"m2, place 0", "m2, place 1"})
    drained = _started_on(daemon, id_, "m1")
    _change(daemon, id_, {"platform": "scripted", "name": "scripted-2", "machines": [_machine("m2"), _machine("m3")]})
    before = _started_on_service(daemon, id_, "scripted")
    daemon.kill()
    daemon.start()
    daemon.wait(id_, "DONE", timeout_s=60)
    ends = picked(daemon.trials(id_), "sequenceId", "status", "finalResult", "attempt")
    assert ends == [(number, "SUCCEEDED", str(number), 1) for number in range(TRIALS)], "no job was lost"
    assert _started_on(daemon, id_, "m1") == drained, "nothing new on a machine that is drained"
    assert _started_on_service(daemon, id_, "scripted") == before, "nor on a service that is removed"
    assert _started_on(daemon, id_, "m3") > 0
    names = [service["name"] for service in daemon.status(id_)["services"] if service["status"] != "removed"]
    assert names == ["scripted-2"]
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def _machine(name: str) -> dict[str, Any]:
    return {"name": name, "places": 2}


def _change(daemon: Daemon, id_: str, *sections: dict[str, Any]) -> None:
    daemon.call("PATCH", f"/experiments/{id_}", json={"trainingService": list(sections)})


def _places(daemon: Daemon, id_: str) -> set[str]:
    return {place for (place,) in picked(daemon.attempts(id_), "place") if place}


def _started_on(daemon: Daemon, id_: str, machine: str) -> int:
    return sum(place.startswith(f"{machine},") for (place,) in picked(daemon.attempts(id_), "place"))


def _started_on_service(daemon: Daemon, id_: str, service: str) -> int:
    return picked(daemon.attempts(id_), "service").count((service,))
