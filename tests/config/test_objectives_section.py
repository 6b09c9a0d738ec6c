"""`objectives` and `constraints`: what they become, and a sentence for each mistake, with line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.config.admission import warnings
from nni_manager.config.experiment_file import from_canonical, load
from nni_manager.domain.errors import ConfigInvalid

pytestmark = pytest.mark.unit

BASE = """\
searchSpace: {x: {_type: uniform, _value: [0, 1]}}
trialCommand: 'true'
trialConcurrency: 1
trainingService: {platform: local}
"""
TPE = "tuner: {name: TPE}\n"
BOTH = "objectives: {accuracy: maximize, latency: minimize}\n"


def test_they_are_stored_and_reach_the_tuner(tmp_path: Path) -> None:
    spec = load(BASE + TPE + BOTH + 'constraints: {memory: "<=8.50", latency: " > 0.1 "}\n', directory=tmp_path)
    assert spec.canonical["objectives"] == {"accuracy": "maximize", "latency": "minimize"}
    assert spec.canonical["constraints"] == {"memory": "<= 8.5", "latency": "> 0.1"}
    assert spec.tuner.objectives == spec.canonical["objectives"]
    assert spec.tuner.constraints == spec.canonical["constraints"]
    assert from_canonical(spec.canonical) == spec
    assert warnings(spec) == ()


@pytest.mark.parametrize("tuner", ["TPE", "nsga2", "Random"])
def test_tuners_that_search_for_several(tmp_path: Path, tuner: str) -> None:
    assert load(f"{BASE}tuner: {{name: {tuner}}}\n{BOTH}", directory=tmp_path).tuner.objectives


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        (TPE + "objectives: {accuracy: max}\n", 6, "objectives.accuracy", "must be maximize or minimize, not 'max'"),
        (TPE + "objectives:\n  a: maximize\n  b: 1\n", 8, "objectives.b", "must be maximize or minimize, not a"),
        (TPE + BOTH + "keepCheckpoints: best 2\n", 7, "keepCheckpoints", "must be 'all' or 'none' with objectives"),
        (TPE + "objectives: {}\n", 6, "objectives", "is empty; name a key of the final results"),
        (TPE + "objectives: accuracy\n", 6, "objectives", "must be a mapping of names to values"),
        (TPE + BOTH + 'constraints:\n  memory: "8"\n', 8, "constraints.memory", 'such as "<= 8"'),
        (TPE + BOTH + "constraints: {memory: 8}\n", 7, "constraints.memory", 'such as "<= 8"'),
        (TPE + 'constraints: {memory: "<= 8"}\n', 6, "constraints", "requires objectives, which is not set; add"),
        (
            "tuner: {name: GridSearch}\n" + BOTH,
            5,
            "tuner",
            "GridSearch optimizes one number, .* use one of Random, TPE, N",
        ),
        ("tuner: {className: a.B}\n" + BOTH, 5, "tuner", "a.B optimizes one number, but objectives is set"),
        (
            "tuner: {name: TPE, classArgs: {optimize_mode: minimize}}\n" + BOTH,
            5,
            "tuner.classArgs.optimize_mode",
            "objectives sets the directions; remove this argument",
        ),
        ("tuner: {name: NSGA2}\n", 5, "tuner.name", "NSGA2 searches for objectives; add for example objectives"),
        (TPE + BOTH + "assessor: {name: Medianstop}\n", 7, "assessor", "uses one number, but objectives is set"),
        (TPE + "objective: {a: maximize}\n", 6, "objective", "did you mean objectives"),
    ],
)
def test_mistake_is_named(tmp_path: Path, text: str, line: int, field: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words) as refused:
        load(BASE + text, directory=tmp_path, file="experiment.yml")
    [problem] = refused.value.problems
    assert (problem.file, problem.line, problem.field) == ("experiment.yml", line, field)
