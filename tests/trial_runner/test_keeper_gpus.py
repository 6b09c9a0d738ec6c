"""The keeper's reading of GPUs: from fake drivers, by way of a process of its own, and never in the way of jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keeper_client_for_tests import Client, KeeperProcess, keeper_directory

from tests.fake_driver import FakeDriver, OnCard
from trial_runner import gpu_probe, processes
from trial_runner.keeper.jobs import gpus
from trial_runner.keeper.jobs.gpus import Gpus
from trial_runner.keeper.jobs.job import Jobs
from trial_runner.loop import Loop

pytestmark = pytest.mark.unit

Json = dict[str, Any]


@pytest.fixture(params=[False, True], ids=["nvidia-smi", "nvml"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "driver", 2, has_library=request.param)


@pytest.fixture
def keeper(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeeperProcess]:
    """One that finds the driver."""
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    with keeper_directory() as keeper:
        assert keeper.start() == b"ready\n"
        yield keeper


def read(client: Client, max_age_s: float = 0) -> Json:
    reading: Json = client.ask("facts", gpus=max_age_s)["gpus"]
    return reading


def test_facts_list_cards_with_their_processes(driver: FakeDriver, keeper: KeeperProcess, tmp_path: Path) -> None:
    client = keeper.connect()
    job = {"command": "sleep 60", "environment": dict(os.environ), "files": {}, "grace_s": 0, "directory": "/"}
    pid = client.ask("spawn", name="j1", attempt_directory=str(tmp_path / "j1"), **job)["pid"]
    driver.show({0: [OnCard(pid, 512), OnCard(os.getpid(), 11264), OnCard(1, 10, "G")], 1: [OnCard(4194304, 5, "C+G")]})
    reading = read(client)
    assert (reading["error"], reading["is_absent"]) == ("", False)
    first, second = reading["cards"]
    assert (first["index"], first["uuid"], first["memory_bytes"]) == (0, driver.uuid(0), 16384 * 2**20)
    assert first["used_bytes"] == (512 + 11264 + 10) * 2**20
    told = {p["pid"]: (p["job"], p["is_compute"], p["memory_bytes"] // 2**20) for p in first["processes"]}
    assert told == {pid: ("j1", True, 512), os.getpid(): (None, True, 11264), 1: (None, False, 10)}
    assert {p["user"] for p in first["processes"]} - {""}, "each visible process has a user name"
    assert [(p["pid"], p["user"], p["is_compute"]) for p in second["processes"]] == [(4194304, "", True)]
    client.ask("signal", name="j1", grace_s=0)
    client.ask("follow", jobs={"j1": {}})
    client.until_ended("j1")


@pytest.mark.parametrize("kind", [{"has_library": True}, {}, {"is_old": True}], ids=["nvml", "nvidia-smi", "tables"])
def test_memory_that_the_driver_keeps_is_not_free(
    kind: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An H100 has 480 of its 81559 MiB for the driver: NVML counts them as used, nvidia-smi names them apart."""
    driver = FakeDriver(tmp_path / "driver", 2, mib=81559, reserved_mib=480, **kind)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    driver.show({1: [OnCard(os.getpid(), 2978)]})
    cards = gpu_probe.cards_by_program() if not kind.get("has_library") else asked(gpu_probe.__file__)
    assert [card["memory_bytes"] // 2**20 for card in cards] == [81559, 81559]
    assert [card["used_bytes"] // 2**20 for card in cards] == [480, 480 + 2978]
    assert [p["memory_bytes"] // 2**20 for card in cards for p in card["processes"]] == [2978]


def asked(program: str) -> list[Json]:
    """The cards as the probe tells them in a process of its own: this one has loaded another driver's library."""
    told = subprocess.run([sys.executable, "-S", program], input="\n", stdout=subprocess.PIPE, text=True, check=True)
    return list(json.loads(told.stdout)["cards"])


def test_server_of_mps_does_not_compute(driver: FakeDriver, keeper: KeeperProcess, tmp_path: Path) -> None:
    """It holds a context on every card that its clients use, and stays when they have ended; they are listed, too."""
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", server)
    with subprocess.Popen([server, "60"]) as process:
        try:
            driver.show({0: [OnCard(process.pid, 66), OnCard(os.getpid(), 5516)]})
            told = [(p["pid"], p["is_compute"]) for p in read(keeper.connect())["cards"][0]["processes"]]
        finally:
            process.kill()
    assert told == [(process.pid, False), (os.getpid(), True)]


def test_a_reading_is_kept_for_as_long_as_is_asked(driver: FakeDriver, keeper: KeeperProcess) -> None:
    client = keeper.connect()
    assert read(client)["cards"][0]["processes"] == []
    driver.show({0: [OnCard(os.getpid())]})
    assert read(client, 60)["cards"][0]["processes"] == []
    assert len(read(client)["cards"][0]["processes"]) == 1


def test_a_driver_that_refuses_says_why_and_comes_back(driver: FakeDriver, keeper: KeeperProcess) -> None:
    client = keeper.connect()
    driver.fail("Failed to initialize NVML: Driver/library version mismatch")
    reading = read(client)
    assert "version mismatch" in reading["error"] and not reading["is_absent"]
    driver.show({})
    assert read(client)["error"] == ""


def test_facts_without_gpus_ask_no_driver(driver: FakeDriver, keeper: KeeperProcess) -> None:
    driver.hang()
    assert "gpus" not in keeper.connect().ask("facts")


class Machine:
    """A `Gpus` with a loop that runs while a test waits."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.loop = Loop(self._fail)
        self.gpus = Gpus(self.loop, Jobs(), self.said.append)

    def read(self) -> Json:
        found: list[Json] = []
        self.gpus.read(0, found.append)
        self.turn_until(lambda: bool(found))
        return found[0]

    def turn_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.loop.run_turn()

    def close(self) -> None:
        pid = self.gpus._process.pid if self.gpus._process is not None else 0
        self.gpus.close()
        if pid:
            os.waitpid(pid, 0)

    def _fail(self, error: Exception) -> None:
        raise error


@pytest.fixture
def machine(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    machine = Machine()
    yield machine
    machine.close()


def test_probe_with_a_hanging_driver_is_killed(
    driver: FakeDriver, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.hang()
    monkeypatch.setattr(gpus, "_ANSWER_S", 0.05)
    monkeypatch.setattr(gpus, "_MOST_S", 0.2)
    assert "has not answered" in machine.read()["error"]
    pid = machine.gpus._process.pid if machine.gpus._process is not None else 0
    machine.turn_until(lambda: machine.gpus._process is None)
    assert "hangs" in machine.said[0]
    os.waitpid(pid, 0)
    driver.show({})
    monkeypatch.setattr(gpus, "_ANSWER_S", 60.0)
    monkeypatch.setattr(gpus, "_MOST_S", 60.0)
    assert machine.read()["error"] == ""


def test_probe_ends_without_requests(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_IDLE_S", 0.05)
    machine.read()
    assert machine.gpus._process is not None
    pid = machine.gpus._process.pid
    machine.turn_until(lambda: machine.gpus._process is None)
    os.waitpid(pid, 0)
    assert processes.read_stat(pid) is None


def test_a_machine_without_a_driver(machine: Machine, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    reading = machine.read()
    assert reading["is_absent"] and reading["cards"] == []
    assert "nvidia-smi does not exist" in reading["error"]
