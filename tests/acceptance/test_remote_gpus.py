"""GPUs of two SSH machines, simulated by fake drivers: limits, and wait reasons of the other trials."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.card_monitor import CardMonitor
from tests.fake_driver import FakeDriver, OnCard
from tests.live_daemon import Daemon, end_all, picked
from tests.platforms.remote.ssh_machines import RealMachine
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300), pytest.mark.group("remote_gpus")]

#: NNI_KILLS=20: the number for a release.
KILLS = int(os.environ.get("NNI_KILLS", "4"))
TRIALS = 6 + 2 * KILLS
#: Maximum seconds until a wait reason is up to date.
MOST_STALE_S = 5.0

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """


@dataclass
class GpuMachine:
    """`host`: name in the config; for users they are different machines."""

    host: str
    ssh: RealMachine
    driver: FakeDriver

    def entry(self, **fields: Any) -> dict[str, Any]:
        return self.ssh.entry(host=self.host, **fields)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[GpuMachine, GpuMachine]]:
    """Machines with two cards reported by a program, and with four reported by a library."""
    two, four = (
        GpuMachine(host, RealMachine(tmp_path / host), FakeDriver(tmp_path / f"{host}-driver", cards, has_library=lib))
        for host, cards, lib in (("127.0.0.1", 2, False), ("localhost", 4, True))
    )
    four.driver.remove_program()
    for machine in (two, four):
        machine.ssh.environment.update(machine.driver.environment)
        asyncio.run(machine.ssh.start())
    yield two, four
    for machine in (two, four):
        asyncio.run(machine.ssh.stop())
        end_all(str(machine.ssh.home))


def test_two_experiments_fill_two_machines_across_daemon_kills(
    daemon: Daemon, code: Path, machines: tuple[GpuMachine, GpuMachine]
) -> None:
    """One experiment uses whole cards, the other two cards per trial, each shared by two trials.

    A foreign process computes on one of the six cards, and draws on another.
    """
    two, four = machines
    with _somebody() as other:
        two.driver.show({1: [OnCard(other, kind="G")]})
        four.driver.show({3: [OnCard(other, 11264)]})
        alone = daemon.create(_config(machines, "1.3", trialGpuNumber=1), code)
        pairs = daemon.create(_config(machines, "1.7", trialGpuNumber=2, maxTrialNumberPerGpu=2), code)
        homes = [str(machine.ssh.home) for machine in machines]
        with CardMonitor(homes, {alone: 1, pairs: 2}) as monitor:
            for _ in range(KILLS):
                time.sleep(random.uniform(0.1, 2.0))
                daemon.kill()
                daemon.start()
            for id_ in (alone, pairs):
                daemon.wait(id_, "DONE", timeout_s=120)
    assert monitor.findings == []
    assert len(monitor.seen) == 2 * TRIALS
    free = {(str(two.ssh.home), 0), (str(two.ssh.home), 1), *((str(four.ssh.home), card) for card in range(3))}
    assert monitor.cards == free
    assert (monitor.most_at_once, monitor.most_on_one) == (len(free), 2)
    for id_ in (alone, pairs):
        assert picked(daemon.trials(id_), "status") == [("SUCCEEDED",)] * TRIALS
        assert picked(daemon.attempts(id_), "number") == [(1,)] * TRIALS
        daemon.call("POST", f"/experiments/{id_}/stop")


def test_wait_reason_names_the_jobs_on_the_cards(
    shared: Daemon, code: Path, machines: tuple[GpuMachine, GpuMachine]
) -> None:
    two, four = machines
    with ExitStack() as others:
        first, second = (others.enter_context(_somebody()) for _ in range(2))
        two.driver.show({0: [OnCard(first, 11264)], 1: [OnCard(second)]})
        four.driver.show({card: [OnCard(second)] for card in range(4)})
        id_ = shared.create(_config(machines, "0.1", trials=1, trialGpuNumber=1), code)
        busy = f"gpu 0 on 127.0.0.1 busy: pid {first} of user {two.ssh.user}, 11 GiB"
        until(lambda: busy in (why := _why(shared, id_)) and f"gpu 2 on localhost busy: pid {second}" in why, 20)
        four.driver.show({card: [OnCard(first if card == 2 else second)] for card in range(4)})
        until(lambda: f"gpu 2 on localhost busy: pid {first}" in _why(shared, id_), MOST_STALE_S)
        two.driver.show({1: [OnCard(second)]})
        until(lambda: picked(shared.attempts(id_), "place") == [("127.0.0.1, gpu 0",)], MOST_STALE_S)
        shared.wait(id_, "DONE")
        shared.call("POST", f"/experiments/{id_}/stop")


def test_plan_shows_chosen_machines_and_reasons_against_others(
    shared: Daemon, code: Path, machines: tuple[GpuMachine, GpuMachine]
) -> None:
    two, four = machines
    with _somebody() as other:
        two.driver.show({0: [OnCard(other)]})
        four.driver.show({card: [OnCard(other)] for card in (1, 3)})
        config = {"experimentWorkingDirectory": str(shared.data), **_config(machines, "0", trialGpuNumber=1)}
        body = {"config": json.dumps(config), "directory": str(code), "environment": dict(os.environ)}
        before = set(shared.data.iterdir())

        def planned() -> dict[str, Any]:
            """A plan does not wait for machines: one with a slow login is away."""
            [plan] = shared.call("POST", "/platforms/plan", json=body)["services"]
            return dict(plan)

        until(lambda: len(planned()["places"]) == 3, 30)
        plan = planned()
    assert set(shared.data.iterdir()) == before
    assert plan["places"] == ["localhost, gpu 0", "127.0.0.1, gpu 1", "localhost, gpu 2"]
    assert f"gpu 0 on 127.0.0.1 busy: pid {other}" in plan["whyNot"]["127.0.0.1"]
    assert f"gpu 3 on localhost busy: pid {other}" in plan["whyNot"]["localhost"]


def test_more_cards_than_any_machine_has_are_refused(
    shared: Daemon, code: Path, machines: tuple[GpuMachine, GpuMachine]
) -> None:
    config = _config(machines, "0", trialGpuNumber=5)
    body = {"config": json.dumps(config), "directory": str(code), "environment": dict(os.environ)}
    with shared.client() as client:
        answer = client.post("/api/v1/experiments", json=body)
    assert answer.status_code == 400
    assert "127.0.0.1 has 2 GPUs, and a trial needs 5" in answer.text
    assert "localhost has 4 GPUs, and a trial needs 5" in answer.text


def _config(machines: tuple[GpuMachine, ...], seconds: str, *, trials: int = TRIALS, **fields: Any) -> dict[str, Any]:
    """`fields`: of the section; card limits belong to each machine."""
    own = {name: fields.pop(name) for name in ("maxTrialNumberPerGpu",) if name in fields}
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"sleep {seconds}; {_REPORT}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 8,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {
            "platform": "remote",
            "machineList": [machine.entry(**own) for machine in machines],
            **fields,
        },
    }


@contextmanager
def _somebody() -> Iterator[int]:
    """A foreign process."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _why(daemon: Daemon, id: str) -> str:
    """Wait reason of its only trial."""
    waits = [trial["wait"]["sentence"] for trial in daemon.trials(id) if trial["wait"]]
    return "".join(waits)
