"""Machines with password login: the next daemon still knows the password."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon, end_all, picked, processes_of
from tests.platforms.remote import ssh_machines
from tests.platforms.remote.ssh_machines import PASSWORD, InProcessMachine
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
Serve = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Run a coroutine of a machine, which keeps serving while the test waits."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def machines(tmp_path: Path, serve: Serve) -> Iterator[list[InProcessMachine]]:
    machines = [InProcessMachine(tmp_path / name) for name in ("one", "two")]
    for machine in machines:
        serve(machine.start())
    yield machines
    for machine in machines:
        serve(machine.stop())
        end_all(str(machine.home))


def test_next_daemon_logs_in_on_a_removed_machine(daemon: Daemon, code: Path, machines: list[InProcessMachine]) -> None:
    one, two = machines
    id_ = daemon.create(_config([one], code / "go"), code)
    _until_both_run(daemon, id_)
    section = {"platform": "remote", "machineList": [two.entry()]}
    daemon.call("PATCH", f"/experiments/{id_}", json={"trainingService": section})
    daemon.kill()
    daemon.start()
    (code / "go").touch()
    daemon.wait(id_, "DONE")
    _check_that_each_ran_once(daemon, id_)
    assert PASSWORD not in daemon.log() + json.dumps(daemon.status(id_))
    for path in daemon.data.rglob("*"):
        if path.is_file() and PASSWORD.encode() in path.read_bytes():
            assert 0 in (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077), path
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert len(list(one.home.rglob("trials/*/stdout"))) == 2
    daemon.call("DELETE", f"/experiments/{id_}")
    assert not list(one.home.rglob("trials")), "what was written there goes with the experiment"


def test_removed_unreachable_machine_is_cleaned_on_return(
    daemon: Daemon, code: Path, machines: list[InProcessMachine], serve: Serve
) -> None:
    one, two = machines
    id_ = daemon.create(_config([one], code / "go"), code)
    _until_both_run(daemon, id_)
    section = {"platform": "remote", "machineList": [two.entry()]}
    daemon.call("PATCH", f"/experiments/{id_}", json={"trainingService": section})
    serve(one.stop())
    daemon.call("POST", f"/experiments/{id_}/stop")
    state = daemon.wait(id_, "STOPPED", timeout_s=20)
    assert any("may still run" in warning["message"] for warning in state["warnings"])
    daemon.terminate()
    daemon.start()
    cleaned = daemon.call("POST", "/platforms/clean", json={})["cleaned"]
    assert str(one.port) in cleaned[0]["trouble"]
    serve(one.start())
    cleaned = daemon.call("POST", "/platforms/clean", json={})["cleaned"]
    assert not any(found["trouble"] for found in cleaned), "the daemon's own look may have been faster"
    until(lambda: not processes_of(str(one.home)))


def test_password_is_replaced_while_trials_run(
    daemon: Daemon, code: Path, machines: list[InProcessMachine], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, renewed = machines[0], "an0ther-passw0rd"
    config = _config([one], code / "go")
    config["trainingService"]["machineList"][0]["password"] = "${MACHINE_PASSWORD}"
    id_ = daemon.create(config, code, {"MACHINE_PASSWORD": PASSWORD})
    _until_both_run(daemon, id_)
    monkeypatch.setattr(ssh_machines, "PASSWORD", renewed)
    serve(one.stop())
    serve(one.start())
    until(lambda: one.refused_logins > 0)
    daemon.call("PUT", f"/experiments/{id_}/credentials", json={"secrets": {"${MACHINE_PASSWORD}": renewed}})
    (code / "go").touch()
    daemon.wait(id_, "DONE")
    _check_that_each_ran_once(daemon, id_)
    daemon.call("POST", f"/experiments/{id_}/stop")


def _until_both_run(daemon: Daemon, id_: str) -> None:
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)


def _check_that_each_ran_once(daemon: Daemon, id_: str) -> None:
    assert picked(daemon.trials(id_), "status") == [("SUCCEEDED",)] * 2
    assert picked(daemon.attempts(id_), "state", "number") == [("SUCCEEDED", 1)] * 2


def _config(machines: Sequence[InProcessMachine], go: Path) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"while [ ! -e {go} ]; do sleep 0.05; done; {_REPORT}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "remote", "machineList": [machine.entry() for machine in machines]},
    }
