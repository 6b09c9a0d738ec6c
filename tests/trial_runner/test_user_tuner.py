"""A user's tuner: called as NNI calls it, and told everything exactly once across a restart."""

from __future__ import annotations

import json
from typing import Any

import numpy
import pytest

from trial_runner.tuner_host.user_tuner import UserTuner, plain

pytestmark = pytest.mark.unit


class NoMoreTrialError(Exception):
    """As `nni` calls it."""


class Recorder:
    """Written like a subclass of nni.tuner.Tuner; remembers all calls."""

    def __init__(self, limit: int = 100) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.limit = limit

    def update_search_space(self, search_space: Any) -> None:
        self.calls.append(("space", search_space))

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        if parameter_id >= self.limit:
            raise NoMoreTrialError("not now")
        return {"x": parameter_id}

    def receive_trial_result(self, parameter_id: Any, parameters: Any, value: Any, **kwargs: Any) -> None:
        self.calls.append(("result", parameter_id, parameters, value, kwargs.get("customized")))

    def trial_end(self, parameter_id: Any, success: bool, **kwargs: Any) -> None:
        self.calls.append(("end", parameter_id, success))

    def import_data(self, data: Any) -> None:
        self.calls.append(("import", data))


class Old(Recorder):
    """Without ``**kwargs`` and trial_end."""

    trial_end = None  # type: ignore[assignment]

    def receive_trial_result(self, parameter_id: Any, parameters: Any, value: Any) -> None:  # type: ignore[override]
        self.calls.append(("result", parameter_id, parameters, value))


def result(number: int | None, parameters: object, value: object) -> dict[str, Any]:
    """As the daemon tells a trial's end."""
    told = {"parameter_id": number, "parameters": parameters, "value": value, "trial_id": f"t{number}"}
    return {**told, "status": "FAILED" if value is None else "SUCCEEDED", "source": "algorithm"}


def customized(number: int | None, value: object) -> dict[str, Any]:
    return {
        **result(number, {"x": "mine"}, value),
        "status": "SUCCEEDED" if value is not None else "FAILED",
        "source": "customized",
    }


def test_own_results_are_received_and_then_ended() -> None:
    user = Recorder()
    tuner = UserTuner(user)
    assert tuner.propose([4]) == ([(4, {"x": 4})], False)
    tuner.learn(result(4, {"x": 4}, {"default": 1, "other": 2}))
    assert user.calls == [("result", 4, {"x": 4}, {"default": 1, "other": 2}, False), ("end", 4, True)]


class Nothing(Recorder):
    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        return None


class NothingAtAll(Recorder):
    def generate_multiple_parameters(self, parameter_ids: list[int], **kwargs: Any) -> Any:
        return None


class NothingInside(Recorder):
    def generate_multiple_parameters(self, parameter_ids: list[int], **kwargs: Any) -> Any:
        return [{"x": 1}, None]


@pytest.mark.parametrize("kind", [Nothing, NothingAtAll, NothingInside])
def test_proposal_of_none_names_the_tuner(kind: type[Recorder]) -> None:
    with pytest.raises(TypeError, match=f"^tuner {kind.__name__} returned None instead of parameters: return a dict"):
        UserTuner(kind()).propose([4, 5])


def test_a_trial_without_result_is_only_ended() -> None:
    user = Recorder()
    tuner = UserTuner(user)
    tuner.propose([0])
    tuner.learn(result(0, {"x": 0}, None))
    assert user.calls == [("end", 0, False)]


def test_optional_methods_of_user_tuner_can_be_missing() -> None:
    user = Old()
    tuner = UserTuner(user)
    tuner.propose([0])
    tuner.learn(result(0, {"x": 0}, 1))
    assert user.calls == [("result", 0, {"x": 0}, 1)]


def test_no_more_trials_means_not_now() -> None:
    tuner = UserTuner(Recorder(limit=2))
    assert tuner.propose([0, 1, 2, 3]) == ([(0, {"x": 0}), (1, {"x": 1})], False)


def test_other_exceptions_pass_through() -> None:
    class Broken(Recorder):
        def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
            raise KeyError("mistake")

    with pytest.raises(KeyError, match="mistake"):
        UserTuner(Broken()).propose([0])


def test_generate_multiple_parameters_of_a_user_tuner_is_used() -> None:
    class Several(Recorder):
        def generate_multiple_parameters(self, parameter_ids: list[int], **kwargs: Any) -> Any:
            self.calls.append(("several", parameter_ids))
            return [{"x": number * 10} for number in parameter_ids[:2]]

    user = Several()
    tuner = UserTuner(user)
    assert tuner.propose([1, 2, 3])[0] == [(1, {"x": 10}), (2, {"x": 20})]
    tuner.learn(result(3, {}, 1))  # never proposed
    assert user.calls == [("several", [1, 2, 3]), ("import", [{"parameter": {}, "value": 1}])]


class Owing(Recorder):
    """As NNI's PBT: two run at a time, and what it had nothing for is proposed by the callback after a result."""

    owed: list[int]

    def generate_multiple_parameters(self, parameter_ids: list[int], **kwargs: Any) -> Any:
        self.calls.append(("several", parameter_ids))
        self.callback = kwargs["st_callback"]
        self.owed = parameter_ids[2:]
        return [{"x": number} for number in parameter_ids[:2]]

    def receive_trial_result(self, parameter_id: Any, parameters: Any, value: Any, **kwargs: Any) -> None:
        for number in self.owed:
            self.callback(number, {"late": numpy.int64(number)})
        self.owed = []


def test_callback_proposals_come_first_with_their_ids() -> None:
    user = Owing()
    tuner = UserTuner(user)
    assert tuner.propose([0, 1, 2, 3, 4])[0] == [(0, {"x": 0}), (1, {"x": 1})]
    tuner.learn(result(0, {"x": 0}, 1))
    assert tuner.propose([5])[0] == [(2, {"late": 2})]
    assert tuner.propose([6, 7, 8])[0] == [(3, {"late": 3}), (4, {"late": 4}), (8, {"x": 8})]
    tuner.learn(result(2, {"late": 2}, 1))  # known as its own, not imported
    asked = [("several", [0, 1, 2, 3, 4]), ("end", 0, True), ("several", [8]), ("end", 2, True)]
    assert user.calls == asked  # and for nothing that it owes


def test_results_come_with_the_parameters_as_the_class_made_them() -> None:
    made = {"layers": (16, 8), 3: numpy.float32(0.1)}

    class Exact(Recorder):
        def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
            return made

    user = Exact()
    tuner = UserTuner(user)
    stored = json.loads(json.dumps(tuner.propose([0])[0][0][1]))
    assert stored != made
    tuner.learn(result(0, stored, 1))
    assert user.calls[0][2] is made


def test_customized_trials_are_passed_on_only_if_accepted() -> None:
    user = Recorder()
    tuner = UserTuner(user)
    tuner.learn(customized(None, 1))
    assert user.calls == []
    user._accept_customized = True  # type: ignore[attr-defined]
    tuner.learn(customized(None, 1))
    tuner.learn(customized(7, None))
    assert user.calls == [("result", None, {"x": "mine"}, 1, True), ("end", None, True), ("end", 7, False)]


@pytest.mark.parametrize(("accepts", "known"), [(False, [1, 3]), (True, [1, 5, 3])])
def test_after_a_restart_everything_is_imported_once(accepts: bool, known: list[int]) -> None:
    user = Recorder()
    user._accept_customized = accepts  # type: ignore[attr-defined]
    tuner = UserTuner(user)
    history = [result(0, {"x": 0}, 1), customized(None, 5), result(1, {"x": 1}, None), result(2, {"x": 2}, 3)]
    tuner.restore(history=history, unfinished=[], imported=[[{"parameter": {}, "value": 9}]])
    assert [[entry["value"] for entry in call[1]] for call in user.calls] == [[9], known]
    user.calls.clear()
    tuner.learn(result(3, {"x": 3}, 4))  # ran during the restart
    tuner.learn(result(4, {"x": 4}, None))
    assert user.calls == [("import", [{"parameter": {"x": 3}, "value": 4}])]


def test_empty_import_is_not_passed_on() -> None:
    user = Recorder()
    UserTuner(user).restore(history=[result(0, {}, None)], unfinished=[], imported=[])
    assert user.calls == []


def test_arrays_that_a_trial_reported_arrive_as_arrays() -> None:
    user = Recorder()
    tuner = UserTuner(user)
    tuner.propose([4])
    written = {"__ndarray__": [[1.0, 2.0]], "dtype": "float32", "shape": [1, 2]}
    tuner.learn(result(4, {"x": 4}, {"default": 1, "scores": [written], "own": {"__ndarray__": 1, "dtype": "?!"}}))
    value = user.calls[0][3]
    (scores,) = value["scores"]
    assert (scores.dtype, scores.shape, scores.tolist()) == (numpy.float32, (1, 2), [[1.0, 2.0]])
    assert value["default"] == 1 and value["own"] == {"__ndarray__": 1, "dtype": "?!"}


def test_numpy_values_become_plain() -> None:
    value = {"a": numpy.int64(3), "b": [numpy.float32(0.5), (numpy.arange(2),)], "c": "text", "d": None}
    assert json.loads(json.dumps(plain(value))) == {"a": 3, "b": [0.5, [[0, 1]]], "c": "text", "d": None}


def test_loading_saved_folder_continues_its_trial() -> None:
    """As NNI's PBT hands checkpoints on: the first ones load what they save, which is nothing yet."""

    class Folders(Recorder):
        loads = ("0/0", "1/0", "0/0", "0/0")
        saves = ("0/0", "1/0", "0/1", "1/1")

        def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
            folders = {"load_checkpoint_dir": self.loads[parameter_id]}
            return {**folders, "save_checkpoint_dir": self.saves[parameter_id]}

    tuner = UserTuner(Folders())
    tuner.propose([0, 1])
    assert [tuner.continues(0), tuner.continues(1)] == [None, None]
    tuner.propose([2, 3])
    assert [tuner.continues(2), tuner.continues(3)] == [0, 0]
