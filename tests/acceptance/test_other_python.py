"""Trials that would run in the wrong Python version.

The experiment is refused if the version can be checked before the start; else the first trial puts it on hold.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nni_manager
from nni_manager.domain.errors import InvalidInput
from tests import other_python
from tests.fakes.process import FakeProcess, running
from tests.live_daemon import Daemon, end_all, picked
from tests.platforms.remote.ssh_machines import RealMachine

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.group("other_python")]

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


class Machines:
    """Two machines with a real sshd; trials find this Python on the first, and another on the second."""

    def __init__(self, folder: Path) -> None:
        self.fits, self.differs = RealMachine(folder / "fits"), RealMachine(folder / "differs")
        self.fits.environment["PATH"] = other_python.own_first()
        self.differs.environment["PATH"] = other_python.put(folder / "other-bin")
        self.other = folder / "other-bin" / "python3"

    @property
    def all(self) -> tuple[RealMachine, ...]:
        return (self.fits, self.differs)

    def service(self, *machines: RealMachine, **fields: Any) -> dict[str, Any]:
        return {"platform": "remote", "machineList": [machine.entry() for machine in machines], **fields}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    for machine in machines.all:
        asyncio.run(machine.start())
    yield machines
    for machine in machines.all:
        asyncio.run(machine.stop())
        end_all(str(machine.home))


def config(service: object, command: str = _REPORT, **fields: object) -> dict[str, Any]:
    return {
        "searchSpace": SPACE,
        "trialCommand": command,
        "trialConcurrency": 1,
        "maxTrialNumber": 6,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": service,
        **fields,
    }


def ids(daemon: Daemon) -> set[str]:
    return {one["id"] for one in daemon.call("GET", "/experiments")["experiments"]}


def test_closure_is_not_sent_until_all_machines_have_its_python(shared: Daemon, machines: Machines) -> None:
    target, before = 0.5, ids(shared)
    refused = (
        rf"remote: 127\.0\.0\.1: python3 of trials: .*Python {other_python.VERSION}\.1 .*Python {other_python.OWN}"
    )
    with pytest.raises(InvalidInput, match=refused):
        nni_manager.optimize(
            lambda parameters: (parameters["x"] - target) ** 2,
            SPACE,
            trials=4,
            platform=machines.service(*machines.all),
            progress=False,
            data_dir=shared.data,
        )
    assert ids(shared) == before
    assert [list(machine.home.iterdir()) for machine in machines.all] == [[], []]


def test_closure_runs_here_and_on_machines_with_its_python(shared: Daemon, machines: Machines, tmp_path: Path) -> None:
    (met := tmp_path / "met").mkdir()

    def meet(parameters: dict[str, float]) -> float:
        """Trials that end when one has run on each service."""
        (met / os.environ["NNI_PLATFORM"]).touch()
        while len(os.listdir(met)) < 2:
            time.sleep(0.02)
        return parameters["x"] * 2

    there = machines.service(machines.fits, trialConcurrency=1)
    found = nni_manager.optimize(
        meet,
        SPACE,
        trials=4,
        concurrency=2,
        platform=[there, {"platform": "local", "trial_concurrency": 1}],
        progress=False,
        data_dir=shared.data,
    )
    assert [one.value == one.parameters["x"] * 2 for one in found.trials()] == [True] * 4
    assert set(picked(shared.attempts(found.id), "service")) == {("remote",), ("local",)}


def test_service_with_another_python_is_named(shared: Daemon, machines: Machines, code: Path, tmp_path: Path) -> None:
    """`local` checks the PATH of its trials."""
    services = [{"platform": "local"}, machines.service(machines.differs)]
    both = config(services, trialPythonVersion=other_python.OWN)
    with pytest.raises(AssertionError, match="trainingService remote: ") as caught:
        shared.create(both, code, {"PATH": other_python.own_first()})
    assert "trainingService local" not in str(caught.value)
    with pytest.raises(AssertionError, match=r"trainingService local: .*put a Python 3.*first on the PATH"):
        shared.create(both, code, {"PATH": other_python.put(tmp_path / "here")})


def test_returning_machine_waits_until_its_python_is_known(shared: Daemon, machines: Machines, code: Path) -> None:
    asyncio.run(machines.differs.stop())
    id_ = shared.create(config(machines.service(machines.differs), trialPythonVersion=other_python.OWN), code)
    asyncio.run(machines.differs.start())
    state = shared.wait_for(id_, lambda state: "trials would run in" in state["services"][0]["sentence"])
    assert f"need Python {other_python.OWN} (trialPythonVersion)" in state["services"][0]["sentence"]
    assert {trial["status"] for trial in shared.trials(id_)} <= {"WAITING"}
    assert not list(machines.differs.home.rglob("*.tar.gz")), "no code was sent"
    machines.other.unlink()  # the next python3 on its PATH is this one
    shared.wait(id_, "DONE")
    assert set(picked(shared.attempts(id_), "state", "number")) == {("SUCCEEDED", 1)}
    shared.call("POST", f"/experiments/{id_}/stop")


def in_containers(fake: FakeProcess, daemon: Daemon) -> dict[str, Any]:
    """The section of a service that runs trials in containers, whose images cannot be checked."""
    users = {"alice@example.com": {"password": "passw0rd", "teams": ["platform"]}}
    fake.control("reset", users=users, mounts=[[str(daemon.data)] * 2])
    account = {"team": "platform", "email": "alice@example.com", "password": "passw0rd"}
    return {"platform": "dlts", "dashboard": f"{fake.address}/", **account}


def test_image_with_another_python_causes_a_hold(shared: Daemon, code: Path, tmp_path: Path) -> None:
    """Retries do not matter; the other service runs the remaining trials."""
    (code / "function.marshal").write_bytes(b"of another format")
    with running("dlts", tmp_path / "dlts") as fake:
        refuses = {"trialCommand": "python3 -m nni_call function.marshal:3.99", "trialGpuNumber": 0}
        services = [{**in_containers(fake, shared), **refuses}, {"platform": "local"}]
        asked = config(services, trialConcurrency=2, nniManagerIp="127.0.0.1", maxTrialRetries=2)
        id_ = shared.create(asked, code)
        shared.wait(id_, "DONE")
        ran = Counter(picked(shared.attempts(id_), "service"))
        reasons = Counter(picked(shared.trials(id_), "status", "reason"))
        [held] = [one for one in shared.status(id_)["services"] if one["status"] == "on hold"]
        shared.call("POST", f"/experiments/{id_}/stop")
    assert ran == {("dlts",): 1, ("local",): 5}
    assert reasons == {("FAILED", "OTHER_PYTHON"): 1, ("SUCCEEDED", None): 5}
    assert "the function was sent by Python 3.99, and this is Python" in held["sentence"]
    assert f"`nnictl resume {id_}` continues when that version is installed there" in held["sentence"]
