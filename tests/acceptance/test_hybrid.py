"""One experiment on four training services: one is away for a while, one is full, one is lost permanently."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.process import FakeProcess, running
from tests.live_daemon import Daemon, end_all, picked
from tests.platforms.remote.ssh_machines import RealMachine
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIALS = 60
#: Intermediate results identify the service whose command ran.
SERVICES = {"local": 1, "remote": 2, "remote-2": 3, "openpai": 4}
_GONE_SOON = {"trialConcurrency": 2, "machineGracePeriod": "2s"}


class Hybrid:
    """The services' places, and their own settings: command, code, GPU number, concurrency."""

    def __init__(self, folder: Path, fake: FakeProcess) -> None:
        self.folder = folder
        self.fake = fake
        self.nfs = self._folder("nfs")
        for service in SERVICES:
            (self._folder(f"code of {service}") / f"only-{service}").touch()
        self.set_token("t0ken", "reset")

    def set_token(self, token: str, verb: str = "users") -> None:
        """Set the only valid token; `reset`: of a cluster without jobs."""
        self.fake.control(verb, users={"alice": {"tokens": [token]}}, storages={"team-nfs": str(self.nfs)})

    def _folder(self, name: str) -> Path:
        (self.folder / name).mkdir(exist_ok=True)
        return self.folder / name

    def config(self, *machines: RealMachine) -> dict[str, Any]:
        """`machines`: of the two SSH services; without machines these are left out."""
        pai = {
            "host": self.fake.address,
            "username": "alice",
            "token": "t0ken",
            "dockerImage": "example/image",
            "trialCpuNumber": 1,
            "trialMemorySize": "1GB",
            "storageConfigName": "team-nfs",
            "localStorageMountPoint": str(self.nfs),
            "containerStorageMountPoint": str(self.folder / "in-containers"),
        }
        remote = zip(("remote", "remote-2"), machines, ({"trialConcurrency": 3}, _GONE_SOON), strict=False)
        return {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": "exit 9",
            "trialConcurrency": 10,
            "maxTrialNumber": TRIALS,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "nniManagerIp": "127.0.0.1",
            "trainingService": [
                self._section("local", trialGpuNumber=0, trialConcurrency=2),
                *[self._section(name, machineList=[machine.entry()], **own) for name, machine, own in remote],
                self._section("openpai", trialGpuNumber=1, **pai),
            ],
        }

    def _section(self, service: str, **fields: Any) -> dict[str, Any]:
        code = self.folder / f"code of {service}"
        checks = f"test -e only-{service} || exit 3"
        if service == "local":
            checks += f'; test "$PWD" = "{code}" && test "${{CUDA_VISIBLE_DEVICES-all}}" = "" || exit 4'
        say = 'echo "{\\"type\\": \\"%s\\", \\"value\\": %s}" >> "$NNI_OUTBOX"'
        command = (
            f"{checks}; {say % ('intermediate', SERVICES[service])}; sleep 0.8; {say % ('final', '$NNI_TRIAL_SEQ_ID')}"
        )
        platform = service.removesuffix("-2")
        return {"platform": platform, "trialCommand": command, "trialCodeDirectory": str(code), **fields}


@pytest.fixture
def hybrid(tmp_path: Path) -> Iterator[Hybrid]:
    with running("openpai", tmp_path / "cluster") as fake:
        yield Hybrid(tmp_path, fake)


def test_outages_of_several_services_cost_no_trial(shared: Daemon, hybrid: Hybrid, machines: list[RealMachine]) -> None:
    comes_back, is_gone = machines
    hybrid.fake.control("behaviour", quota=1)
    id_ = shared.create(hybrid.config(*machines), hybrid.folder)
    until(lambda: _open(shared, id_).keys() == SERVICES.keys(), within_s=40)
    asyncio.run(is_gone.stop())
    end_all(str(is_gone.home))
    asyncio.run(comes_back.stop())
    until(lambda: {"remote", "remote-2"} <= _away(shared, id_), within_s=20)
    ended = _ended(shared, id_, "local", "openpai")
    until(lambda: _ended(shared, id_, "local", "openpai") >= ended + 4)  # the others continue
    asyncio.run(comes_back.start())
    state = shared.wait(id_, "DONE", timeout_s=90)
    assert state["hold"] is None
    _check(shared, id_)
    assert _away(shared, id_) == {"remote-2"}
    assert all(job["totalGpuNumber"] == 1 for job in hybrid.fake.control("jobs")), "GPUs of this service's trials"
    shared.call("POST", f"/experiments/{id_}/stop")


def test_waiting_trial_names_the_reason_of_every_service(shared: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", quota=0)
    config = hybrid.config()
    config["trainingService"][0]["trialCommand"] = f"while [ ! -e {hybrid.folder}/go ]; do sleep 0.05; done; exit 0"
    id_ = shared.create(config | {"maxTrialNumber": 4}, hybrid.folder)
    words = ("local: all 2 slots of trialConcurrency", "openpai: OpenPAI: User alice has 0 of 0 jobs")
    until(lambda: any(all(word in sentence for word in words) for sentence in _sentences(shared, id_)))
    (hybrid.folder / "go").touch()
    shared.wait(id_, "DONE")
    assert set(picked(shared.attempts(id_), "service", "number")) == {("local", 1)}


def test_expired_token_is_replaced_without_losing_trials(shared: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", hold=True)
    config = hybrid.config() | {"trialConcurrency": 5, "maxTrialNumber": 12}
    config["trainingService"][-1]["token"] = "${PAI_TOKEN}"
    id_ = shared.create(config, hybrid.folder, {"PAI_TOKEN": "t0ken"})
    until(lambda: len(hybrid.fake.control("jobs")) == 3)
    hybrid.set_token("another")
    until(lambda: "refuses" in _sentence(shared, id_, "openpai"))
    ended = _ended(shared, id_, "local")
    until(lambda: _ended(shared, id_, "local") >= min(ended + 2, 9))  # it continues
    assert shared.status(id_)["hold"] is None
    hybrid.fake.control("behaviour", hold=False)
    _update_credentials(shared, id_, PAI_TOKEN="another")
    shared.wait(id_, "DONE")
    trials = picked(shared.trials(id_), "sequenceId", "status", "finalResult", "attempt")
    assert trials == [(number, "SUCCEEDED", str(number), 1) for number in range(12)]
    services = [service for (service,) in picked(shared.attempts(id_), "service")]
    assert len(hybrid.fake.control("jobs")) == services.count("openpai")


def test_lost_service_delays_neither_the_others_nor_a_stop(shared: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", hold=True)
    config = hybrid.config() | {"trialConcurrency": 5, "maxTrialNumber": 9}
    id_ = shared.create(config, hybrid.folder)
    until(lambda: len(hybrid.fake.control("jobs")) == 3)
    hybrid.fake.stop(kill=True)
    try:
        until(lambda: _ended(shared, id_, "local") == 6)
        assert _status(shared, id_, "openpai") == "away"
        shared.call("POST", f"/experiments/{id_}/stop")
        ends = Counter(picked(shared.trials(id_), "status", "reason"))
        assert ends == {("SUCCEEDED", None): 6, ("USER_CANCELED", "EXPERIMENT_STOPPED"): 3}
    finally:
        hybrid.fake.start()


def _check(daemon: Daemon, id_: str) -> None:
    """Check each trial's result and its service's command; only the lost service may cost attempts."""
    trials = picked(daemon.trials(id_), "sequenceId", "status", "finalResult")
    assert trials == [(number, "SUCCEEDED", str(number)) for number in range(TRIALS)]
    attempts = daemon.attempts(id_)
    lost = [attempt["service"] for attempt in attempts if attempt["state"] == "LOST"]
    assert lost in ([], ["remote-2"], ["remote-2"] * 2), lost
    others = [attempt for attempt in attempts if attempt["state"] != "LOST"]
    counts = Counter(attempt["service"] for attempt in others)
    assert len({attempt["trialId"] for attempt in others}) == len(others) == TRIALS, "one attempt of each"
    assert {"local", "remote", "openpai"} <= counts.keys(), counts
    services = {(attempt["trialId"], attempt["number"]): attempt["service"] for attempt in attempts}
    intermediates = picked(daemon.results(id_, type="PERIODICAL"), "trialId", "attempt", "result")
    said = {(services[trial, number], int(result)) for trial, number, result in intermediates}
    assert said <= set(SERVICES.items()) and {service for service, _ in said} >= counts.keys()


def _open(daemon: Daemon, id_: str) -> Counter[str]:
    return Counter(trial["service"] for trial in daemon.trials(id_, status="RUNNING"))


def _ended(daemon: Daemon, id_: str, *services: str) -> int:
    return sum(trial["service"] in services for trial in daemon.trials(id_, status="SUCCEEDED"))


def _away(daemon: Daemon, id_: str) -> set[str]:
    """Services with an unreachable machine, in the API."""
    return {one["name"] for one in daemon.status(id_)["services"] if "unreachable since" in one["sentence"]}


def _status(daemon: Daemon, id_: str, service: str) -> str:
    return next(str(one["status"]) for one in daemon.status(id_)["services"] if one["name"] == service)


def _sentence(daemon: Daemon, id_: str, service: str) -> str:
    return next(str(one["sentence"]) for one in daemon.status(id_)["services"] if one["name"] == service)


def _update_credentials(daemon: Daemon, id_: str, **variables: str) -> None:
    nnictl = Path(sys.executable).with_name("nnictl")
    command = [nnictl, "update", "credentials", id_, "--data-dir", daemon.data]
    subprocess.run(command, env={**daemon.environment, **variables}, check=True, timeout=30)


def _sentences(daemon: Daemon, id_: str) -> list[str]:
    return [trial["wait"]["sentence"] for trial in daemon.trials(id_, status="WAITING") if trial["wait"]]
