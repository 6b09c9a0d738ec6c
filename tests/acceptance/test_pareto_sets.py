"""Two objectives and a constraint with a killed daemon: the Pareto set is the same everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.objectives import Goals, extended_set
from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

OBJECTIVES = {"accuracy": "maximize", "latency": "minimize"}
CONSTRAINTS = {"memory": "<= 8"}
RESULT = (
    "{accuracy: .parameters.x, latency: (.parameters.x * .parameters.x + .parameters.y), memory: (10 * .parameters.x)}"
)
CONFIG: dict[str, Any] = {
    "searchSpace": {name: {"_type": "uniform", "_value": [0, 1]} for name in "xy"},
    "trialCommand": f"""jq -c '{{type: "final", value: {RESULT}}}' "$NNI_SYS_DIR/parameter.cfg" >> "$NNI_OUTBOX" """,
    "trialConcurrency": 3,
    "maxTrialNumber": 30,
    "objectives": OBJECTIVES,
    "constraints": CONSTRAINTS,
    "trainingService": {"platform": "local"},
}


@pytest.mark.parametrize(
    "tuner",
    [
        {"name": "TPE", "classArgs": {"seed": 1, "tpe_args": {"n_startup_jobs": 8}}},
        {"name": "NSGA2", "classArgs": {"seed": 1, "population_size": 5}},
    ],
    ids=["TPE", "NSGA2"],
)
def test_pareto_set_survives_a_killed_daemon(daemon: Daemon, tmp_path: Path, tuner: dict[str, Any]) -> None:
    id_ = daemon.create({**CONFIG, "tuner": tuner}, tmp_path)
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED", 0) >= 12)
    daemon.kill()
    daemon.start()
    state = daemon.wait(id_, "DONE")
    best = _best(daemon, id_)
    assert best and [trial["trialId"] for trial in state["paretoSet"]] == best and state["paretoSize"] == len(best)
    assert state["best"] is None and state["objectives"] == OBJECTIVES
    assert all(trial["isFeasible"] and trial["parameters"]["x"] <= 0.8 for trial in state["paretoSet"])
    assert state["counts"] == {"SUCCEEDED": 30}
    exported = daemon.call("GET", f"/experiments/{id_}/export")
    assert {one["trialJobId"] for one in exported if one["pareto"]} == set(best)
    assert _exported_by_command(daemon, id_, tmp_path / "results.json") == set(best)
    assert f"{len(best)} trial" in _nnictl(daemon, "experiment", "show", id_)
    daemon.call("POST", f"/experiments/{id_}/stop")
    listed = daemon.call("GET", "/experiments")["experiments"][0]
    assert listed["paretoSet"] == state["paretoSet"]


def _best(daemon: Daemon, id_: str) -> list[str]:
    """The Pareto set of all results, in the API's order."""
    goals = Goals.of(OBJECTIVES, CONSTRAINTS)
    results = ((trial["id"], goals.judge(json.loads(trial["finalResult"]))) for trial in daemon.trials(id_))
    return [trial for trial, _ in extended_set([], [(trial, worth) for trial, worth in results if worth is not None])]


def _exported_by_command(daemon: Daemon, id_: str, file: Path) -> set[str]:
    _nnictl(daemon, "experiment", "export", id_, "-f", str(file))
    return {one["trialJobId"] for one in json.loads(file.read_text()) if one["pareto"]}


def _nnictl(daemon: Daemon, *words: str) -> str:
    program = "from nni_manager.cli.main import nnictl; nnictl()"
    command = [sys.executable, "-c", program, "--data-dir", str(daemon.data), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=daemon.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
