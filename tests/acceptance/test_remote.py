"""The daemon with loopback machines, each with a real sshd: from `create` to the removal of the last file."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon, picked, processes_of
from tests.platforms.remote.ssh_machines import RealMachine
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.group("remote")]

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """


def test_trials_on_two_machines_while_servers_and_daemon_die(
    daemon: Daemon, code: Path, machines: list[RealMachine]
) -> None:
    trials = 12
    (code / "note.txt").touch()
    id_ = daemon.create(_config(machines, f"test -f note.txt || exit 3; sleep 0.7; {_REPORT}", trials), code)
    _wait_for_ended(daemon, id_, 2)
    asyncio.run(machines[0].stop())
    daemon.kill()
    daemon.start()
    asyncio.run(machines[0].start())
    daemon.wait(id_, "DONE", timeout_s=90)
    ends = picked(daemon.trials(id_), "sequenceId", "status", "finalResult")
    assert ends == [(number, "SUCCEEDED", str(number)) for number in range(trials)]
    assert {attempt["place"] for attempt in daemon.attempts(id_)} - {""} == {"127.0.0.1"}
    for machine in machines:
        assert list(machine.home.rglob("trials/*/code/note.txt")), "both had some"
    daemon.call("POST", f"/experiments/{id_}/stop")
    for machine in machines:
        assert not list(machine.home.rglob("*.tar.gz")), "the code is gone"
        assert list(machine.home.rglob("trials/*/stdout")), "what trials left is there"
    daemon.call("DELETE", f"/experiments/{id_}")
    for machine in machines:
        assert not list(machine.home.rglob("trials"))
        until(lambda home=machine.home: not processes_of(str(home / ".nni-manager")))  # type: ignore[misc]


def test_machine_is_drained_and_another_added(shared: Daemon, code: Path, machines: list[RealMachine]) -> None:
    (one, two), trials = machines, 20
    id_ = shared.create(_config([one], f"sleep 1; {_REPORT}", trials), code)
    _wait_for_ended(shared, id_, 1)
    section = {"platform": "remote", "machineList": [one.entry(drain=True), two.entry()]}
    shared.call("PATCH", f"/experiments/{id_}", json={"trainingService": section})
    shared.wait(id_, "DONE", timeout_s=60)
    assert set(picked(shared.attempts(id_), "state", "number")) == {("SUCCEEDED", 1)}
    counts = [len(list(machine.home.rglob("trials/*/stdout"))) for machine in machines]
    assert sum(counts) == trials and 0 < counts[0] < trials, counts
    shared.call("POST", f"/experiments/{id_}/stop")


def test_removed_machine_keeps_its_trials_across_a_restart(
    daemon: Daemon, code: Path, machines: list[RealMachine]
) -> None:
    one, two = machines
    id_ = daemon.create(_config([one], f"while [ ! -e {code}/go ]; do sleep 0.05; done; {_REPORT}", 4), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 4)
    section = {"platform": "remote", "machineList": [two.entry()]}
    daemon.call("PATCH", f"/experiments/{id_}", json={"trainingService": section})
    daemon.kill()
    daemon.start()
    (code / "go").touch()
    daemon.wait(id_, "DONE", timeout_s=60)
    assert picked(daemon.trials(id_), "finalResult") == [(str(number),) for number in range(4)]
    assert picked(daemon.attempts(id_), "state", "number") == [("SUCCEEDED", 1)] * 4
    daemon.call("POST", f"/experiments/{id_}/stop")


def test_service_with_its_only_machine_away_has_a_reason(
    shared: Daemon, code: Path, machines: list[RealMachine]
) -> None:
    asyncio.run(machines[0].stop())
    id_ = shared.create(_config(machines[:1], _REPORT, 1), code)
    state = shared.wait_for(id_, lambda state: state["services"][0]["status"] == "away")
    why = state["services"][0]["sentence"]
    assert "127.0.0.1 unreachable since" in why and f"nothing listens at its port {machines[0].port}" in why
    asyncio.run(machines[0].start())
    shared.wait_for(id_, lambda state: state["services"][0]["status"] == "up")
    shared.wait(id_, "DONE")
    shared.call("POST", f"/experiments/{id_}/stop")


def test_away_machine_is_named_while_another_works(shared: Daemon, code: Path, machines: list[RealMachine]) -> None:
    asyncio.run(machines[0].stop())
    id_ = shared.create(_config(machines, _REPORT, 1), code)
    shared.wait(id_, "DONE")
    [service] = shared.wait_for(id_, lambda state: "unreachable since" in state["services"][0]["sentence"])["services"]
    assert service["status"] == "up" and f"nothing listens at its port {machines[0].port}" in service["sentence"]
    shared.call("POST", f"/experiments/{id_}/stop")


def test_remote_logs_are_read_and_kept(shared: Daemon, code: Path, machines: list[RealMachine]) -> None:
    command = f"echo seen; while [ ! -e {code}/go ]; do sleep 0.05; done; {_REPORT}"
    id_ = shared.create(_config(machines[:1], command, 1), code)
    shared.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
    [(trial,)] = picked(shared.trials(id_), "id")
    with shared.client() as client:
        until(lambda: client.get(f"/api/v1/experiments/{id_}/trials/{trial}/logs/stdout").text == "seen\n")
        (code / "go").touch()
        shared.wait(id_, "DONE")
        shared.call("POST", f"/experiments/{id_}/stop")
        assert client.get(f"/api/v1/experiments/{id_}/trials/{trial}/logs/stdout").text == "seen\n"


def test_unusable_machine_refuses_the_experiment(shared: Daemon, code: Path, machines: list[RealMachine]) -> None:
    config = _config(machines[:1], "true", 1)
    config["trainingService"]["machineList"][0]["hostKey"] = machines[1].fingerprint
    body = {"config": json.dumps(config), "directory": str(code), "environment": dict(os.environ)}
    with shared.client() as client:
        answer = client.post("/api/v1/experiments", json=body)
    assert answer.status_code == 400 and machines[0].fingerprint in answer.text, answer.text


def _config(machines: list[RealMachine], command: str, trials: int) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 4,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "remote", "machineList": [machine.entry() for machine in machines]},
    }


def _wait_for_ended(daemon: Daemon, id_: str, count: int) -> None:
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED", 0) >= count, timeout_s=60)
