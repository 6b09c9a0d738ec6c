"""`warmStart`: a new experiment's tuner gets the results of another experiment before its first proposal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.command_line import CommandLine, command_line

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

#: Reports its x.
REPORT_X = """
x=$(sed 's/.*"x": *\\([-0-9.e]*\\).*/\\1/' "$NNI_SYS_DIR/parameter.cfg")
echo "{\\"type\\": \\"final\\", \\"value\\": $x}" >> "$NNI_OUTBOX"
"""


def uniform(low: float, high: float) -> dict[str, Any]:
    return {"x": {"_type": "uniform", "_value": [low, high]}}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("warm")) as line:
        line.serve("--port", "0")
        yield line


@pytest.fixture(scope="module")
def first(line: CommandLine) -> str:
    """A finished experiment with eight trials; the result of each is its x."""
    id_ = line.create(
        trialCommand=REPORT_X,
        searchSpace=uniform(0, 1),
        maxTrialNumber=8,
        tuner={"name": "Random", "classArgs": {"seed": 1}},
    )
    line.daemon.wait(id_, "DONE")
    return id_


def values(line: CommandLine, id_: str) -> list[float]:
    line.daemon.wait(id_, "DONE")
    return [trial["parameters"]["x"] for trial in json.loads(line.good("trial", "ls", id_, "--json"))]


def test_tuner_continues_from_open_and_closed_experiments(line: CommandLine, first: str) -> None:
    tuner = {"name": "Anneal", "classArgs": {"optimize_mode": "minimize", "seed": 1}}
    ask = {"trialCommand": REPORT_X, "searchSpace": uniform(0, 1), "maxTrialNumber": 1, "tuner": tuner}
    cold = values(line, line.create(**ask))
    warm = line.create(**ask, warmStart=[first])
    assert json.loads(line.good("experiment", "show", warm, "--json"))["config"]["warmStart"] == [first]
    of_open = values(line, warm)
    line.good("stop", first)
    assert values(line, line.create(**ask, warmStart=[first])) == of_open != cold


def test_unsuitable_results_are_counted_and_skipped(line: CommandLine, first: str) -> None:
    everything = json.loads(line.good("trial", "ls", first, "--json"))
    middle = sorted(trial["parameters"]["x"] for trial in everything)[3]
    id_ = line.create(trialCommand=REPORT_X, searchSpace=uniform(0, middle), maxTrialNumber=1, warmStart=[first])
    (warning,) = [
        one
        for one in json.loads(line.good("experiment", "show", id_, "--json"))["warnings"]
        if one["code"] == "WARM_START"
    ]
    assert (
        f"4 of the 8 results of experiment {first} are not numbers or do not fit the search space" in warning["message"]
    )
    assert warning["message"].startswith("warmStart: ")


#: Reports two objectives, independent of its parameters.
REPORT_TWO = """echo '{"type": "final", "value": {"f": 1, "g": 2}}' >> "$NNI_OUTBOX" """
REPORT_ONE = """echo '{"type": "final", "value": 1}' >> "$NNI_OUTBOX" """
WAYS: dict[str, dict[str, Any]] = {
    "objectives": {
        "trialCommand": REPORT_TWO,
        "tuner": {"name": "TPE"},
        "objectives": {"f": "minimize", "g": "minimize"},
    },
    "BOHB": {"tuner": {"name": "BOHB", "classArgs": {"optimize_mode": "minimize", "min_budget": 1, "max_budget": 3}}},
    "Batch": {
        "tuner": {"name": "Batch"},
        "searchSpace": {"sets": {"_type": "choice", "_value": [{"x": 0.0}, {"x": 1.0}, {"x": 2.5}]}},
    },
    "GridSearch": {"tuner": {"name": "GridSearch"}, "searchSpace": {"x": {"_type": "quniform", "_value": [0, 5, 1]}}},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_tuner_gets_the_results_of_the_same_tuner(line: CommandLine, way: str) -> None:
    ask = {"trialCommand": REPORT_ONE, "searchSpace": uniform(0, 1), "maxTrialNumber": 2, **WAYS[way]}
    before = line.create(**ask)
    line.daemon.wait(before, "DONE")
    after = line.create(**ask | {"maxTrialNumber": 1}, warmStart=[before])
    line.daemon.wait(after, "DONE")
    shown = json.loads(line.good("experiment", "show", after, "--json"))
    assert [one["message"] for one in shown["warnings"] if one["code"] == "WARM_START"] == []
    if way in ("Batch", "GridSearch"):  # which repeat nothing
        had = [trial["parameters"] for trial in json.loads(line.good("trial", "ls", before, "--json"))]
        (new,) = json.loads(line.good("trial", "ls", after, "--json"))
        assert new["parameters"] not in had


def test_missing_experiment_is_refused(line: CommandLine) -> None:
    file = line.config(trialCommand=REPORT_X, searchSpace=uniform(0, 1), warmStart=["nowhere1"])
    code, sentence = line.bad("create", "--config", file)
    assert code == 2 and "warmStart: cannot find experiment nowhere1; `nnictl experiment list --all`" in sentence
