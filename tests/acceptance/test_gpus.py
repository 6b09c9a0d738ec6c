"""Trials on GPUs of this machine, simulated by a fake driver: assignment, limits and wait reasons."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import ENVIRONMENT
from tests.acceptance.place_monitor import PlaceMonitor, waiting
from tests.fake_driver import FakeDriver, OnCard
from tests.live_daemon import Daemon, assert_gone, picked, running_daemon
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

#: NNI_KILLS=20: the number for a release.
KILLS = int(os.environ.get("NNI_KILLS", "4"))
TRIALS = 6 + 2 * KILLS
#: Maximum seconds that a card is free while the daemon is ready and a trial waits.
MOST_IDLE_S = 2.5
#: Maximum seconds until a wait reason is up to date.
MOST_STALE_S = 5.0


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "driver", 4)


@pytest.fixture
def daemon(tmp_path: Path, driver: FakeDriver) -> Iterator[Daemon]:
    with running_daemon(tmp_path, environment=driver.environment) as daemon:
        yield daemon


def test_two_experiments_share_all_cards_across_daemon_kills(daemon: Daemon, code: Path, driver: FakeDriver) -> None:
    """One experiment uses whole cards; the other puts two of its trials on a card."""
    alone = daemon.create(_config("1.3", TRIALS), code, ENVIRONMENT)
    sharing = daemon.create(_config("1.9", TRIALS, maxTrialNumberPerGpu=2), code, ENVIRONMENT)

    def process() -> int:
        return daemon.process.pid if daemon.process is not None else 0

    limits = {alone: 1, sharing: 2}
    with PlaceMonitor(
        daemon.data, {"this machine": 4}, waiting(daemon, alone, sharing), process, limits=limits
    ) as monitor:
        monitor.note_ready(True)
        for _ in range(KILLS):
            time.sleep(random.uniform(0.1, 2.0))
            monitor.note_ready(False)
            daemon.kill()
            daemon.start()
            monitor.note_ready(True)
        for id_ in (alone, sharing):
            daemon.wait(id_, "DONE", timeout_s=120)
    print(f"longest idle: {monitor.longest_idle}; {KILLS} kills, {2 * TRIALS} trials")
    assert monitor.findings == []
    assert len(monitor.seen) == 2 * TRIALS
    assert (monitor.most_at_once, monitor.most_on_one) == (4, 2)
    assert monitor.longest_idle_s <= MOST_IDLE_S, monitor.longest_idle
    for id_ in (alone, sharing):
        assert picked(daemon.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)] * TRIALS
        daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def test_wait_reason_names_the_jobs_on_the_cards(daemon: Daemon, code: Path, driver: FakeDriver) -> None:
    with ExitStack() as others:
        first, second, third = (others.enter_context(_somebody()) for _ in range(3))
        busy = {0: [OnCard(first, 11264), OnCard(second)], 1: [OnCard(third)], 2: [OnCard(third)], 3: [OnCard(third)]}
        driver.show(busy)
        id_ = daemon.create(_config("0.1", 1), code, ENVIRONMENT)
        user = f"of user {os.environ.get('USER') or 'root'}"
        until(lambda: f"gpu 0 on this machine busy: pid {first} {user}, 11 GiB, pid {second}" in _why(daemon, id_))
        driver.show({**busy, 0: [OnCard(second)]})
        until(lambda: f"gpu 0 on this machine busy: pid {second} {user}, 1 GiB;" in _why(daemon, id_), MOST_STALE_S)
        driver.show({**busy, 0: [OnCard(second, kind="G")]})
        until(lambda: picked(daemon.trials(id_), "place") == [("this machine, gpu 0",)], MOST_STALE_S)
        daemon.wait(id_, "DONE")


def test_impossible_request_is_refused_and_a_delayed_one_planned(
    daemon: Daemon, code: Path, driver: FakeDriver
) -> None:
    many = _body(daemon, code, _config("1", 1, trialGpuNumber=5))
    with daemon.client() as client:
        refused = client.post("/api/v1/experiments", json=many)
    assert refused.status_code == 400
    assert "this machine has 4 GPUs, and a trial needs 5" in refused.text
    driver.show({0: [OnCard(1)], 3: [OnCard(1)]})
    body = _body(daemon, code, _config("1", 3, trialGpuNumber=1))
    until(lambda: len(_plan(daemon, body)["places"]) == 2, MOST_STALE_S)
    plan = _plan(daemon, body)
    assert plan["places"] == ["this machine, gpu 1", "this machine, gpu 2"]
    assert "gpu 0 on this machine busy: pid 1 of user root" in plan["whyNot"]["this machine"]
    assert daemon.call("GET", "/experiments")["experiments"] == []


def _plan(daemon: Daemon, body: dict[str, Any]) -> dict[str, Any]:
    [plan] = daemon.call("POST", "/platforms/plan", json=body)["services"]
    return dict(plan)


def _config(seconds: str, trials: int, **service: Any) -> dict[str, Any]:
    report = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"sleep {seconds}; {report}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 8,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local", "trialGpuNumber": 1, "useActiveGpu": False, **service},
    }


def _body(daemon: Daemon, code: Path, config: dict[str, Any]) -> dict[str, Any]:

    text = json.dumps({"experimentWorkingDirectory": str(daemon.data), **config})
    return {"config": text, "directory": str(code), "environment": ENVIRONMENT}


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
    return "".join(trial["wait"]["sentence"] for trial in daemon.trials(id) if trial["wait"])
