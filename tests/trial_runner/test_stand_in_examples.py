"""The example trial and the example tuner, on the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trial_runner import protocol

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "configs" / "digits"
STAND_IN = ROOT / "trial_runner" / "stand_in"


def run(code: list[str], folder: Path, **environment: str) -> str:
    path = os.pathsep.join([str(STAND_IN), str(DIGITS)])
    command = [sys.executable, "-W", "error", *code]
    done = subprocess.run(command, env={"PYTHONPATH": path, **environment}, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_trial_learns(tmp_path: Path) -> None:
    parameters = {"learning_rate": 0.01, "hidden_size": 32.0, "activation": "tanh", "batch_size": 32}
    (tmp_path / protocol.PARAMETER_FILE).write_text(json.dumps({"parameter_id": 0, "parameters": parameters}))
    environment = {
        protocol.ENV_PLATFORM: "local",
        protocol.ENV_SYSTEM_DIR: str(tmp_path),
        protocol.ENV_OUTBOX: str(tmp_path / protocol.MAIN_OUTBOX),
    }
    run(["trial.py"], DIGITS, **environment)
    (outbox,) = (tmp_path / protocol.OUTBOX_FOLDER).iterdir()
    *intermediate, final = [json.loads(line) for line in outbox.read_text().splitlines()]
    assert {line["type"] for line in intermediate} == {"intermediate"} and len(intermediate) == 15
    assert final == {"type": "final", "value": intermediate[-1]["value"]}
    assert 0.1 < intermediate[0]["value"] < final["value"] and 0.9 < final["value"] <= 1


SEARCH = """
import json, sys
from local_search import LocalSearchTuner

def score(p):
    return -abs(p["x"] - 3.3) - abs(p["q"] - 40) / 40 - abs(p["lr"] - 0.01) + (p["kind"] == "b")

tuner = LocalSearchTuner(optimize_mode=sys.argv[1], seed=0)
tuner.update_search_space(json.loads(sys.argv[2]))
sign = 1 if sys.argv[1] == "maximize" else -1
tried = []
for number in range(150):
    tried.append(tuner.generate_parameters(number))
    tuner.receive_trial_result(number, tried[-1], {"default": sign * score(tried[-1])})
print(json.dumps(tried))
"""
SPACE = {
    "x": {"_type": "uniform", "_value": [-10, 10]},
    "q": {"_type": "quniform", "_value": [8, 64, 8]},
    "lr": {"_type": "loguniform", "_value": [0.0001, 1]},
    "kind": {"_type": "choice", "_value": ["a", "b", "c"]},
}


@pytest.mark.parametrize("mode", ["maximize", "minimize"])
def test_the_example_tuner_finds_the_best_corner(tmp_path: Path, mode: str) -> None:
    tried = json.loads(run(["-c", SEARCH, mode, json.dumps(SPACE)], tmp_path))
    last = tried[-10:]
    assert {(parameters["q"], parameters["kind"]) for parameters in last} & {(40, "b")}
    assert min(abs(parameters["x"] - 3.3) for parameters in last) < 0.5
    for parameters in tried:
        assert -10 <= parameters["x"] <= 10 and parameters["q"] in range(8, 65, 8)
        assert 0.0001 <= parameters["lr"] <= 1.0000001 and parameters["kind"] in ("a", "b", "c")


def test_the_example_tuner_takes_earlier_results(tmp_path: Path) -> None:
    code = (
        "import json, sys; from local_search import LocalSearchTuner\n"
        "tuner = LocalSearchTuner(explore=0, seed=0, step=0.01)\n"
        "tuner.update_search_space(json.loads(sys.argv[1]))\n"
        "best = {'x': 5.0, 'q': 40, 'lr': 0.01, 'kind': 'c'}\n"
        "tuner.import_data([{'parameter': best, 'value': 0.9}, {'parameter': dict(best, x=-5.0), 'value': 0.1}])\n"
        "print(json.dumps(tuner.generate_parameters(0)))"
    )
    proposal = json.loads(run(["-c", code, json.dumps(SPACE)], tmp_path))
    assert abs(proposal["x"] - 5) < 2 and proposal["kind"] == "c"


def test_example_tuner_names_unsupported_type(tmp_path: Path) -> None:
    space = yaml.safe_load((DIGITS / "search_space.yml").read_text())
    proposal = json.loads(run(["-c", SEARCH_ONE, json.dumps(space)], tmp_path))
    assert set(proposal) == {"learning_rate", "hidden_size", "alpha", "activation", "batch_size"}
    refused = json.loads(run(["-c", SEARCH_ONE, '{"n": {"_type": "normal", "_value": [0, 1]}}'], tmp_path))
    assert refused == "n: LocalSearchTuner does not know the type 'normal'; use TPE instead"


SEARCH_ONE = """
import json, sys
from local_search import LocalSearchTuner
try:
    tuner = LocalSearchTuner()
    tuner.update_search_space(json.loads(sys.argv[1]))
    print(json.dumps(tuner.generate_parameters(0)))
except ValueError as error:
    print(json.dumps(str(error)))
"""
