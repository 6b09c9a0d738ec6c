"""One experiment on four training services: one goes away and comes back, one is out of room, one is gone for good."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import until
from tests.fakes.process import FakeProcess, running
from tests.live_daemon import Daemon, processes_of
from tests.platforms.remote.ssh_machines import RealMachine

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIALS = 60
#: What a trial reports on its way says whose command it ran.
SERVICES = {"local": 1, "remote": 2, "remote-2": 3, "openpai": 4}


class Hybrid:
    """The places, and what each service has of its own: command, code, GPU number, concurrency."""

    def __init__(self, folder: Path, fake: FakeProcess, machines: list[RealMachine]) -> None:
        self.folder = folder
        self.fake = fake
        self.comes_back, self.is_gone = machines
        self.nfs = self._folder("nfs")
        for service in SERVICES:
            (self._folder(f"code of {service}") / f"only-{service}").touch()
        self.set_token("t0ken", "reset")

    def set_token(self, token: str, verb: str = "users") -> None:
        """The only one that is accepted; `reset`: by a cluster without jobs."""
        self.fake.control(verb, users={"alice": {"tokens": [token]}}, storages={"team-nfs": str(self.nfs)})

    def _folder(self, name: str) -> Path:
        (self.folder / name).mkdir(exist_ok=True)
        return self.folder / name

    def config(self) -> dict[str, Any]:
        pai = {
            "host": self.fake.address, "username": "alice", "token": "t0ken", "dockerImage": "example/image",
            "trialCpuNumber": 1, "trialMemorySize": "1GB", "storageConfigName": "team-nfs",
            "localStorageMountPoint": str(self.nfs), "containerStorageMountPoint": str(self.folder / "in-containers"),
        }  # fmt: skip
        come_back, gone = [self.comes_back.entry()], [self.is_gone.entry()]
        return {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": "exit 9",
            "trialConcurrency": 10, "maxTrialNumber": TRIALS, "tuner": {"name": "Random"}, "nniManagerIp": "127.0.0.1",
            "trainingService": [
                self._section("local", trialGpuNumber=0, trialConcurrency=2),
                self._section("remote", machineList=come_back, trialConcurrency=3),
                self._section("remote-2", machineList=gone, trialConcurrency=2, machineGracePeriod="2s"),
                self._section("openpai", trialGpuNumber=1, **pai),
            ],
        }  # fmt: skip

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
    machines = [RealMachine(tmp_path / name) for name in ("one", "two")]
    for machine in machines:
        asyncio.run(machine.start())
    with running("openpai", tmp_path / "cluster") as fake:
        yield Hybrid(tmp_path, fake, machines)
    for machine in machines:
        asyncio.run(machine.stop())
        _end_processes(machine)


def test_each_has_its_own_and_no_trial_is_lost(listening: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", quota=1)
    id_ = listening.create(hybrid.config(), hybrid.folder)
    until(lambda: _open(listening, id_).keys() == SERVICES.keys(), within_s=40)
    asyncio.run(hybrid.is_gone.stop())
    _end_processes(hybrid.is_gone)
    asyncio.run(hybrid.comes_back.stop())
    until(lambda: {"remote", "remote-2"} <= _away(listening, id_), within_s=20)
    ended = _ended(listening, id_, "local", "openpai")
    until(lambda: _ended(listening, id_, "local", "openpai") >= ended + 4)  # the others go on
    asyncio.run(hybrid.comes_back.start())
    state = listening.wait(id_, "DONE", timeout_s=90)
    assert state["hold"] is None
    _check(listening, id_)
    assert _away(listening, id_) == {"remote-2"}
    assert all(job["totalGpuNumber"] == 1 for job in hybrid.fake.control("jobs")), "GPUs of this service's trials"
    listening.call("POST", f"/experiments/{id_}/stop")


def test_where_no_service_takes_a_trial_it_names_all_their_reasons(listening: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", quota=0)
    config = hybrid.config()
    del config["trainingService"][1:3]
    config["trainingService"][0]["trialCommand"] = f"while [ ! -e {hybrid.folder}/go ]; do sleep 0.05; done; exit 0"
    id_ = listening.create(config | {"maxTrialNumber": 4}, hybrid.folder)
    words = ("local: all 2 slots of trialConcurrency", "openpai: OpenPAI: User alice has 0 of 0 jobs")
    until(lambda: any(all(word in sentence for word in words) for sentence in _sentences(listening, id_)))
    (hybrid.folder / "go").touch()
    listening.wait(id_, "DONE")
    assert listening.rows(id_, "SELECT DISTINCT service, number FROM attempts") == [("local", 1)]


def test_a_token_expires_and_is_replaced_while_trials_run_and_none_is_lost(listening: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", hold=True)
    config = hybrid.config() | {"trialConcurrency": 5, "maxTrialNumber": 12}
    del config["trainingService"][1:3]
    config["trainingService"][1]["token"] = "${PAI_TOKEN}"
    id_ = listening.create(config, hybrid.folder, {"PAI_TOKEN": "t0ken"})
    until(lambda: len(hybrid.fake.control("jobs")) == 3)
    hybrid.set_token("another")
    until(lambda: _status(listening, id_, "openpai") == "on hold")
    ended = _ended(listening, id_, "local")
    until(lambda: _ended(listening, id_, "local") >= min(ended + 2, 9))  # it goes on
    assert listening.status(id_)["hold"] is None
    hybrid.fake.control("behaviour", hold=False)
    _update_credentials(listening, id_, PAI_TOKEN="another")
    listening.wait(id_, "DONE")
    trials = listening.rows(id_, "SELECT sequence_id, status, final_data FROM trials ORDER BY 1")
    assert trials == [(number, "SUCCEEDED", str(number)) for number in range(12)]
    assert listening.rows(id_, "SELECT DISTINCT number FROM attempts") == [(1,)]
    assert len(hybrid.fake.control("jobs")) == len(
        listening.rows(id_, "SELECT 1 FROM attempts WHERE service='openpai'")
    )


def test_one_that_is_gone_for_good_holds_up_neither_the_others_nor_a_stop(listening: Daemon, hybrid: Hybrid) -> None:
    hybrid.fake.control("behaviour", hold=True)
    config = hybrid.config() | {"trialConcurrency": 5, "maxTrialNumber": 9}
    del config["trainingService"][1:3]
    id_ = listening.create(config, hybrid.folder)
    until(lambda: len(hybrid.fake.control("jobs")) == 3)
    hybrid.fake.stop(kill=True)
    try:
        until(lambda: _ended(listening, id_, "local") == 6)
        assert _status(listening, id_, "openpai") == "away"
        listening.call("POST", f"/experiments/{id_}/stop")
        ends = Counter(listening.rows(id_, "SELECT status, reason FROM trials"))
        assert ends == {("SUCCEEDED", ""): 6, ("USER_CANCELED", "EXPERIMENT_STOPPED"): 3}
    finally:
        hybrid.fake.start()


def _check(daemon: Daemon, id_: str) -> None:
    """Every trial has its own result, and ran the command of its service; only what is gone cost attempts."""
    trials = daemon.rows(id_, "SELECT sequence_id, status, final_data FROM trials ORDER BY 1")
    assert trials == [(number, "SUCCEEDED", str(number)) for number in range(TRIALS)]
    lost = daemon.rows(id_, "SELECT service FROM attempts WHERE state = 'LOST'")
    assert lost in ([], [("remote-2",)], [("remote-2",)] * 2), lost
    others = daemon.rows(id_, "SELECT service, trial_id FROM attempts WHERE state <> 'LOST'")
    counts = Counter(service for service, _ in others)
    assert len({trial for _, trial in others}) == len(others) == TRIALS, "one attempt of each"
    assert {"local", "remote", "openpai"} <= counts.keys(), counts
    query = (
        "SELECT DISTINCT service, data FROM metrics m JOIN attempts a ON (a.trial_id, a.number) ="
        " (m.trial_id, m.attempt) WHERE type = 'PERIODICAL'"
    )
    said = {service: int(data) for service, data in daemon.rows(id_, query)}
    assert said.items() <= SERVICES.items() and said.keys() >= counts.keys()


def _open(daemon: Daemon, id_: str) -> Counter[str]:
    rows = daemon.rows(id_, "SELECT service FROM attempts WHERE state = 'RUNNING'")
    return Counter(service for (service,) in rows)


def _ended(daemon: Daemon, id_: str, *services: str) -> int:
    rows = daemon.rows(id_, "SELECT service FROM attempts WHERE state = 'SUCCEEDED'")
    return sum(service in services for (service,) in rows)


def _away(daemon: Daemon, id_: str) -> set[str]:
    """Services whose machine cannot be reached, as the API shows them."""
    return {one["name"] for one in daemon.status(id_)["services"] if "unreachable since" in one["sentence"]}


def _status(daemon: Daemon, id_: str, service: str) -> str:
    return next(str(one["status"]) for one in daemon.status(id_)["services"] if one["name"] == service)


def _update_credentials(daemon: Daemon, id_: str, **variables: str) -> None:
    nnictl = Path(sys.executable).with_name("nnictl")
    command = [nnictl, "update", "credentials", id_, "--data-dir", daemon.data]
    subprocess.run(command, env={**daemon.environment, **variables}, check=True, timeout=30)


def _sentences(daemon: Daemon, id_: str) -> list[str]:
    return [sentence for (sentence,) in daemon.rows(id_, "SELECT wait_sentence FROM trials WHERE status = 'WAITING'")]


def _end_processes(machine: RealMachine) -> None:
    for process in processes_of(str(machine.home)):
        process.kill()
