"""Two experiments share two machines with four places each, while the daemon is killed at random times."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.numbered import ENVIRONMENT
from tests.acceptance.place_monitor import PlaceMonitor, waiting
from tests.live_daemon import Daemon, assert_gone, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

#: NNI_KILLS=20: the number for a release.
KILLS = int(os.environ.get("NNI_KILLS", "5"))
TRIALS = 8 + 3 * KILLS
MACHINES = {"m1": 4, "m2": 4}
#: Maximum seconds that a place is free while the daemon is ready and a trial waits.
MOST_IDLE_S = 1.0


def test_every_place_is_used_by_one_trial_across_daemon_kills(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    ids = [daemon.create(_config(seconds), code, ENVIRONMENT) for seconds in ("1.3", "2.1")]

    def process() -> int:
        return daemon.process.pid if daemon.process is not None else 0

    with PlaceMonitor(daemon.data, MACHINES, waiting(daemon, *ids), process) as monitor:
        monitor.note_ready(True)
        for _ in range(KILLS):
            time.sleep(random.uniform(0.1, 2.0))
            monitor.note_ready(False)
            daemon.kill()
            daemon.start()
            monitor.note_ready(True)
        for id_ in ids:
            daemon.wait(id_, "DONE", timeout_s=120)
    print(f"longest idle: {monitor.longest_idle}; {KILLS} kills, {2 * TRIALS} trials")
    assert monitor.findings == []
    assert len(monitor.seen) == 2 * TRIALS and monitor.most_at_once == 8
    assert monitor.longest_idle_s <= MOST_IDLE_S, monitor.longest_idle
    for id_ in ids:
        _check_results(daemon, id_)
        daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def _config(seconds: str) -> dict[str, Any]:
    report = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"sleep {seconds}; {report}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 8,
        "maxTrialNumber": TRIALS,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {
            "platform": "scripted",
            "launch": "process",
            "channel": "pull",
            "machines": [{"name": name, "places": places} for name, places in MACHINES.items()],
        },
    }


def _check_results(daemon: Daemon, id_: str) -> None:
    """Check that every trial has its own result from one attempt."""
    ends = picked(daemon.trials(id_), "sequenceId", "status", "finalResult", "attempt")
    assert ends == [(number, "SUCCEEDED", str(number), 1) for number in range(TRIALS)]
