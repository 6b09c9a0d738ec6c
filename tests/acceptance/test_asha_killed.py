"""ASHA with a failing trial and a daemon that is killed between two rungs: the rungs keep their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import PYTHON, Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start, pytest.mark.timeout(120)]

#: Results of the trials, in order; the first one fails.
SCORES = (8, 9, 3, 2, 1, 6)


def config() -> dict[str, Any]:
    parameters = [{"x": score, "fails": score == 8} for score in SCORES]
    return {
        "searchSpace": {"set": {"_type": "choice", "_value": parameters}},
        "trialCommand": f"{PYTHON} racing.py",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": len(SCORES),
        "tuner": {"name": "Batch"},
        "assessor": {"name": "ASHA", "classArgs": {"optimize_mode": "maximize", "eta": 2}},
        "trainingService": {"platform": "local"},
    }


def test_asha_rungs_keep_earlier_results_after_a_daemon_kill(daemon: Daemon, code: Path) -> None:
    """6 is third of six in the first rung, so it continues. Compared only with 9, which runs during the kill, it would
    be stopped. Trials that should be stopped have no gate.
    """
    gates = code.parent / "gates"
    gates.mkdir()

    def open_gates(*names: str) -> None:
        for name in names:
            (gates / name).touch()

    id_ = daemon.create(config(), code, {"GATES": str(gates)})
    open_gates("8.begin", "8.end")
    daemon.wait_for(id_, lambda state: state["counts"].get("FAILED"))
    open_gates("9.begin")
    daemon.wait_for(id_, lambda _: "9" in reported(daemon, id_))
    open_gates("3.begin", "2.begin", "1.begin")
    daemon.wait_for(id_, lambda state: state["counts"].get("EARLY_STOPPED") == 3)
    daemon.kill()
    daemon.start()
    open_gates("6.begin")
    daemon.wait_for(id_, lambda _: "6" in reported(daemon, id_))
    open_gates("9.end")
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED"))
    open_gates("6.end")
    daemon.wait(id_, "DONE")
    found = {trial["parameters"]["x"]: trial["status"] for trial in daemon.trials(id_)}
    stopped = dict.fromkeys((3, 2, 1), "EARLY_STOPPED")
    assert found == {8: "FAILED", 9: "SUCCEEDED", **stopped, 6: "SUCCEEDED"}


def reported(daemon: Daemon, id_: str) -> list[str]:
    return [metric["result"] for metric in daemon.results(id_)]
