"""A daemon start while a platform is away, and a resume while a job may still run there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import ENVIRONMENT
from tests.live_daemon import Daemon, assert_gone, picked
from tests.waiting import until

#: Seconds that the platform is away after the daemon's start; NNI_AWAY_S=60: the number for a release.
AWAY_S = float(os.environ.get("NNI_AWAY_S", "12"))
#: Seconds after the experiment's start at which it goes away.
GOES_S = 4.0
REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
SERVICE = {"platform": "scripted", "launch": "process", "channel": "pull"}

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(240),
]  # a long timeout starts them early, because they mostly wait


def test_daemon_starts_during_a_platform_outage(daemon: Daemon, code: Path) -> None:
    away_s = AWAY_S + 8  # a stop waits 5 s; the rest is for a busy machine
    command = f"echo $$ > {code}/stopped; sleep 600"
    stopped = daemon.create(_config(code, command, trials=1, away_s=away_s), code, ENVIRONMENT)
    going_on = daemon.create(_config(code, f"sleep 6; {REPORT}", trials=3, away_s=away_s), code, ENVIRONMENT)
    begun_s = time.monotonic()
    for id_ in (stopped, going_on):
        daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
    until(lambda: (code / "stopped").exists() and (code / "stopped").read_text().strip(), 10)
    daemon.kill()
    time.sleep(max(0.0, begun_s + GOES_S - time.monotonic()))
    daemon.start()
    for id_ in (stopped, going_on):
        (service,) = daemon.wait_for(id_, lambda state: state["services"][0]["status"] == "away", 2)["services"]
        assert "enterOutage" in service["sentence"], service
    waits = {one["id"]: one["waitsFor"] for one in daemon.call("GET", "/experiments")["experiments"]}
    assert all(waits[id_]["sentence"] == f"scripted is away: {service['sentence']}" for id_ in (stopped, going_on))
    pid = int((code / "stopped").read_text())
    since_s = time.monotonic()
    assert daemon.call("POST", f"/experiments/{stopped}/stop")["status"] == "STOPPED"
    assert time.monotonic() - since_s < 6.5, "5 s, and what this machine takes"
    until(lambda: daemon.status(stopped)["warnings"], 5)
    (warning,) = daemon.status(stopped)["warnings"]
    assert "1 job may still run on scripted" in warning["message"]
    assert _runs(pid)
    (left,) = daemon.call("POST", "/platforms/clean")["cleaned"]
    assert (left["experiment"], left["trouble"] != "", _runs(pid)) == (stopped, True, True), "it is away still"
    until(lambda: not _clean(daemon) and not _runs(pid), away_s + 20)
    daemon.wait(going_on, "DONE", timeout_s=40)
    ends = picked(daemon.trials(going_on), "sequenceId", "status", "finalResult")
    assert ends == [(number, "SUCCEEDED", str(number)) for number in range(3)]
    assert len(daemon.attempts(going_on)) == 3, "it went on by itself"
    daemon.call("POST", f"/experiments/{going_on}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def test_no_trial_starts_elsewhere_while_its_last_job_may_run(daemon: Daemon, code: Path) -> None:
    began = f"echo $$ >> {code}/started"
    command = f"{began}; [ $(wc -l < {code}/started) -gt 1 ] || sleep {2 * AWAY_S + 10}; {REPORT}"
    config = _config(code, command, trials=1)
    config["trainingService"] = [config["trainingService"], SERVICE]
    id_ = daemon.create(config, code, ENVIRONMENT)
    begun_s = time.monotonic()
    until(lambda: len(_started(code)) == 1, 10)
    (first,) = _started(code)
    time.sleep(max(0.0, begun_s + GOES_S - time.monotonic()))
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert _runs(first)
    daemon.call("POST", f"/experiments/{id_}/resume")
    trial = daemon.wait_for(id_, lambda _: _waiting(daemon, id_).startswith("its last job may still run"))
    assert trial["counts"] == {"WAITING": 1}
    while _runs(first):
        assert _started(code) == [first], "it started again next to its last job"
        time.sleep(0.02)
    daemon.wait(id_, "DONE", timeout_s=40)
    assert picked(daemon.trials(id_), "status", "finalResult") == [("SUCCEEDED", "0")]
    assert len(_started(code)) == 2
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def test_removed_unreachable_service_delays_no_trial(daemon: Daemon, code: Path) -> None:
    config = _config(code, f"echo $$ > {code}/started; sleep 600", trials=1)
    config["trainingService"] = [config["trainingService"]]
    id_ = daemon.create(config, code, ENVIRONMENT)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
    daemon.wait_for(id_, lambda state: state["services"][0]["status"] == "away", 10)
    (pid,) = _started(code)
    section = {**SERVICE, "name": "scripted-2"}
    daemon.call("PATCH", f"/experiments/{id_}", json={"trainingService": [section], "now": True})
    ended = daemon.wait_for(id_, lambda state: state["counts"] == {"USER_CANCELED": 1}, 12)
    assert _runs(pid) and ended["status"] == "DONE"
    (warning,) = daemon.wait_for(id_, lambda state: state["warnings"], 5)["warnings"]
    assert warning["code"] == "MAY_STILL_RUN" and "1 job may still run on scripted" in warning["message"]
    (left,) = daemon.call("POST", "/platforms/clean")["cleaned"]
    assert (left["experiment"], left["service"], left["jobs"]) == (id_, "scripted", 1)
    assert left["trouble"] and _runs(pid), "it is away still"
    daemon.wait_for(id_, lambda state: not state["warnings"], AWAY_S + 30)
    until(lambda: not _runs(pid), 5)
    assert daemon.log().count("could not be delivered") <= 4, "less often with each time"
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def _config(code: Path, command: str, trials: int, away_s: float = AWAY_S) -> dict[str, Any]:
    away = {"after": GOES_S - 1, "for": away_s}
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": trials,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {**SERVICE, "outage": away, "enterOutage": away},
    }


def _clean(daemon: Daemon) -> list[Any]:
    """Jobs that it could not end."""
    return [one for one in daemon.call("POST", "/platforms/clean")["cleaned"] if one["trouble"]]


def _waiting(daemon: Daemon, id_: str) -> str:
    """Wait reason of the only trial; empty: not waiting."""
    return "".join(trial["wait"]["sentence"] for trial in daemon.trials(id_, status="WAITING") if trial["wait"])


def _started(code: Path) -> list[int]:
    """Processes of the trial, in the order of their starts."""
    file = code / "started"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
