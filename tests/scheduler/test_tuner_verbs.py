"""What a tuner's process answers, asked in this process."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.scheduler.tuning.process import own_verbs
from tests.scheduler.tuner_requests import Message, item, start
from trial_runner.protocol import Decoder

pytestmark = pytest.mark.unit


class InProcess:
    def __init__(self) -> None:
        self.verbs = own_verbs()

    def ask(self, **request: Any) -> Message:
        (answer,) = Decoder().feed(self.verbs.answer({"id": 7, **request}))
        assert answer.pop("id") == 7
        return answer

    def result(self, **request: Any) -> Any:
        answer = self.ask(**request)
        assert "error" not in answer, answer
        return answer["result"]


@pytest.fixture
def tuner() -> InProcess:
    return InProcess()


def test_a_tuner_proposes_and_learns(tuner: InProcess) -> None:
    assert tuner.result(**start()) == {"proposes_ahead": True, "watches": False, "withdraws": False}
    answer = tuner.result(verb="propose", ids=[0, 1])
    assert [one["parameter_id"] for one in answer["proposals"]] == [0, 1] and answer["exhausted"] is False
    assert all(0 <= one["parameters"]["x"] <= 1 for one in answer["proposals"])
    assert tuner.result(verb="learn", results=[item(0, 0.5), item(1, None)]) == {}
    assert tuner.result(verb="state") == {"tuner": {"proposed": 2}}


def test_own_tuners_get_expected_number_of_trials(tuner: InProcess) -> None:
    auto = {"name": "Auto", "class_args": {"optimize_mode": "maximize", "seed": 1}}
    tuner.result(**start(tuner={**auto, "expected": {"trials": 33, "concurrency": 4}}))
    assert "33 trials and 4 at a time" in tuner.result(verb="state")["tuner"]["chosen"]


def test_an_exhausted_grid_says_so(tuner: InProcess) -> None:
    space = {"x": {"_type": "choice", "_value": [1, 2]}}
    tuner.result(**start(tuner={"name": "GridSearch"}, search_space=space))
    answer = tuner.result(verb="propose", ids=[5, 6, 7])
    proposals = [{"parameter_id": 5, "parameters": {"x": 1}}, {"parameter_id": 6, "parameters": {"x": 2}}]
    assert answer == {"proposals": proposals, "exhausted": True}
    tuner.result(verb="search_space", search_space={"x": {"_type": "choice", "_value": [2, 3]}})
    assert tuner.result(verb="propose", ids=[7])["proposals"] == [{"parameter_id": 7, "parameters": {"x": 3}}]


def test_history_unfinished_and_imported_are_all_restored(tuner: InProcess) -> None:
    pending = {"parameter_id": 1, "parameters": {"x": 1}, "trial_id": "b", "source": "resumed"}
    request = start(
        tuner={"name": "GridSearch"},
        search_space={"x": {"_type": "randint", "_value": [0, 5]}},
        history=[item(0, 1, {"x": 0}), item(None, 1, {"x": 3}, source="customized")],
        unfinished=[pending],
        imported=[[{"parameter": {"x": 2}, "value": 1}]],
    )
    assert tuner.result(**request) == {"proposes_ahead": True, "watches": False, "withdraws": True}
    assert tuner.result(verb="propose", ids=[2])["proposals"] == [{"parameter_id": 2, "parameters": {"x": 4}}]


def test_imported_data_reaches_the_tuner(tuner: InProcess) -> None:
    tuner.result(**start(tuner={"name": "TPE"}))
    assert tuner.result(verb="import", data=[{"parameter": {"x": 0.5}, "value": 1}]) == {}
    assert tuner.result(verb="state")["tuner"]["learned"] == 1


def test_judging_continues_at_last_step(tuner: InProcess) -> None:
    done = item(0, 10, intermediates=[10, 10, {"default": 10}])
    tuner.result(**start(assessor={"name": "Medianstop"}, history=[done]))
    trials = [
        {"trial_id": "good", "values": [11, 1, 1], "from": 0},
        {"trial_id": "bad", "values": [9, 11], "from": 0},
        {"trial_id": "known", "values": [9, 11], "from": 1},
        {"trial_id": "nan", "values": [float("nan"), {"default": 3}], "from": 1},
        {"trial_id": "nothing new", "values": [1], "from": 1},
    ]
    assert tuner.result(verb="judge", trials=trials) == {"stop": ["bad", "nan"]}


def test_trials_are_judged_by_step_with_continued_results(tuner: InProcess) -> None:
    done = item(0, 10, intermediates=[10, 20, 60])  # averages 10, 15, 30
    stepped = {
        **item(
            1,
            10,
            intermediates=[50],
        ),
        "steps": [5],
        "earlier": [[4, 30]],
    }  # averages 30, 40
    tuner.result(**start(assessor={"name": "Medianstop"}, history=[done, stepped]))
    trials = [
        {"trial_id": "counted", "values": [16], "from": 0},
        {"trial_id": "bad", "values": [16], "from": 0, "steps": [2], "earlier": []},
        {"trial_id": "earlier", "values": [16], "from": 0, "steps": [2], "earlier": [[0, 31], [3, 0]]},
        {"trial_id": "later", "values": [0], "from": 0, "steps": [6], "earlier": []},
        {"trial_id": "sixth", "values": [31, 31], "from": 0, "steps": [4, 5], "earlier": []},
    ]
    assert tuner.result(verb="judge", trials=trials) == {"stop": ["bad", "sixth"]}


def test_the_assessor_hears_of_ended_trials(tuner: InProcess) -> None:
    tuner.result(**start(assessor={"name": "Medianstop"}))
    trial = {"trial_id": "a", "values": [1], "from": 0}
    assert tuner.result(verb="judge", trials=[trial]) == {"stop": []}
    tuner.result(verb="learn", results=[item(0, None, intermediates=[100]), item(1, 3)])
    assert tuner.result(verb="judge", trials=[trial]) == {"stop": []}
    tuner.result(verb="learn", results=[item(2, 3, intermediates=[2])])
    assert tuner.result(verb="judge", trials=[trial]) == {"stop": ["a"]}


def test_an_assessor_without_a_direction_has_the_experiment_s(tuner: InProcess) -> None:
    tuner.result(**start(assessor={"name": "Medianstop", "direction": "minimize"}))
    tuner.result(verb="learn", results=[item(0, 3, intermediates=[2])])
    assert tuner.result(verb="judge", trials=[{"trial_id": "a", "values": [1], "from": 0}]) == {"stop": []}
    assert tuner.result(verb="judge", trials=[{"trial_id": "b", "values": [3], "from": 0}]) == {"stop": ["b"]}
    said = {"name": "Medianstop", "class_args": {"optimize_mode": "maximize"}, "direction": "minimize"}
    tuner.result(**start(assessor=said))
    tuner.result(verb="learn", results=[item(0, 3, intermediates=[2])])
    assert tuner.result(verb="judge", trials=[{"trial_id": "a", "values": [1], "from": 0}]) == {"stop": ["a"]}


def test_no_trial_is_stopped_without_assessor(tuner: InProcess) -> None:
    tuner.result(**start())
    assert tuner.result(verb="judge", trials=[{"trial_id": "a", "values": [1], "from": 0}]) == {"stop": []}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (start(tuner={"name": "Radnom"}), "did you mean Random"),
        (start(tuner={"name": "TPE", "class_args": {"x": 1}}), "classArgs.x"),
        (start(assessor={"name": "Curvefit"}), "did you mean Curvefitting"),
        (start(assessor={"name": "Nobody"}), "cannot find assessor 'Nobody'"),
        (start(search_space={"x": 3}), "searchSpace.x"),
        ({"verb": "propose", "ids": [0]}, "has not been started"),
        ({"verb": "dance"}, "KeyError: 'dance'"),
    ],
)
def test_errors_are_answered_with_their_traceback(tuner: InProcess, request_: Message, words: str) -> None:
    error = tuner.ask(**request_)["error"]
    assert error["kind"] == "raised" and words in error["message"]
    assert error["details"].startswith("Traceback")


def test_tuner_start_is_retried_after_a_failure(tuner: InProcess) -> None:
    tuner.result(**start())
    assert "error" in tuner.ask(**start(search_space=[]))
    assert "has not been started" in tuner.ask(verb="propose", ids=[0])["error"]["message"]
    tuner.result(**start())
    assert len(tuner.result(verb="propose", ids=[0])["proposals"]) == 1
