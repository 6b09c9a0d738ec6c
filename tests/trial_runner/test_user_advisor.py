"""A user's advisor on the stand-in, in this process: told what happens, asked once for each slot, heard at any time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scheduler.tuner_requests import Message, item, start
from tests.trial_runner.advisors import OLD, RACING
from trial_runner.protocol import Decoder
from trial_runner.tuner_host.user_verbs import UserVerbs

pytestmark = pytest.mark.unit

STAND_IN = Path(__file__).parents[2] / "trial_runner" / "stand_in"


class Host:
    """A host of users' classes, with the advisor `racing.Racing`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.verbs = UserVerbs()

    def ask(self, **request: Any) -> Message:
        (answer,) = Decoder().feed(self.verbs.answer({"id": 7, **request}))
        return answer

    def result(self, **request: Any) -> Any:
        answer = self.ask(**request)
        assert "error" not in answer, answer["error"]["details"]
        return answer["result"]

    def advisor(self, name: str = "racing.Racing", **arguments: Any) -> Message:
        return {"class_name": name, "code_directory": str(self.folder), "class_args": arguments}

    def start(self, **changes: Any) -> Any:
        return self.result(**start(**{"tuner": self.advisor(), **changes}))

    def propose(self, *ids: int) -> list[tuple[int, Any, Any]]:
        """Number, x, and what the class was told since it proposed last."""
        answer = self.result(verb="propose", ids=list(ids))
        made = [(one["parameter_id"], one["parameters"]) for one in answer["proposals"]]
        return [(number, values["x"], values.get("calls")) for number, values in made]

    def learn(self, *results: Message) -> Any:
        return self.result(verb="learn", results=list(results))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", [str(STAND_IN), *sys.path])
    before = dict(sys.modules)
    for name in [name for name in before if name.partition(".")[0] == "nni"]:
        del sys.modules[name]
    (tmp_path / "racing.py").write_text(RACING)
    (tmp_path / "old.py").write_text(OLD)
    importlib.invalidate_caches()
    yield Host(tmp_path)
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def test_an_advisor_proposes_and_watches(host: Host) -> None:
    assert host.start() == {"proposes_ahead": False, "watches": True, "withdraws": False}
    assert host.propose(3, 4) == [(3, 1, [["space", ["x"]]]), (4, 2, [])]


def test_advisor_gets_results_with_own_numbers(host: Host) -> None:
    host.start()
    host.propose(3)
    trial = {"trial_id": "t3", "parameter_id": 3, "values": [0.5, 0.75], "from": 0}
    assert host.result(verb="judge", trials=[trial]) == {"stop": []}
    host.learn(item(3, {"default": 1}, intermediates=[0.5, 0.75, 0.9]))
    told = [
        ["t3", "p_1", 0, 0.5],
        ["t3", "p_1", 1, 0.75],
        ["t3", "p_1", 2, 0.9],
        ["t3", "p_1", "final", {"default": 1}],
        ["t3", "SUCCEEDED", "p_1"],
    ]
    assert host.propose(5) == [(5, 2, told)]


def test_it_stops_trials(host: Host) -> None:
    host.start()
    host.propose(0, 1)
    values = {"parameter_id": 1, "values": [1, -1], "from": 1}
    assert host.result(verb="judge", trials=[{"trial_id": "t1", **values}]) == {"stop": ["t1"]}
    assert host.result(verb="judge", trials=[{"trial_id": "t1", **values, "values": [1, -1, 2]}]) == {"stop": []}


def test_a_stop_after_a_result_is_in_that_answer(host: Host) -> None:
    host.start()
    host.propose(0, 1)
    assert host.learn(item(0, None, intermediates=[-1])) == {"stop": ["t0"]}


def test_it_is_asked_once_for_each_slot_as_by_nni(host: Host) -> None:
    host.start()
    assert [number for number, _, _ in host.propose(0, 1, 2, 3)] == [0, 1]
    assert host.propose(4) == [], "two are owed already"
    host.learn(item(0, 1.0))
    assert [(number, x) for number, x, _ in host.propose(5)] == [(5, 3)], "it was made when the other one ended"
    assert host.propose(6) == [], "two run"


def test_results_of_earlier_process_are_imported(host: Host) -> None:
    history = [item(0, 1.0, {"x": 9}), item(1, None), item(None, 2.0, source="customized")]
    pending = {"parameter_id": 2, "parameters": {"x": 8}, "trial_id": "t2", "source": "algorithm"}
    data = [{"parameter": {"x": 7}, "value": 3}]
    host.start(history=history, unfinished=[pending], imported=[data])
    host.result(verb="judge", trials=[{"trial_id": "t2", "parameter_id": 2, "values": [-5], "from": 0}])
    host.learn(item(2, 4.0, {"x": 8}))
    assert host.propose(3)[0][2] == [
        ["space", ["x"]],
        ["import", data],
        ["import", [{"parameter": {"x": 9}, "value": 1.0}]],
        ["import", [{"parameter": {"x": 8}, "value": 4.0}]],
    ]


def test_advisor_gets_changed_search_space(host: Host) -> None:
    host.start()
    host.result(verb="search_space", search_space={"y": {}})
    assert host.propose(0)[0][2] == [["space", ["x"]], ["another space", ["y"]]]


def test_arguments_of_an_advisor_are_judged_without_making_one(host: Host) -> None:
    wrong = {"tuner": host.advisor(moost=1), "other": host.advisor(most=1)}
    refusals = host.result(verb="find", classes=wrong)["refusals"]
    assert list(refusals) == ["tuner"] and "unexpected keyword argument 'moost'" in refusals["tuner"]


@pytest.mark.parametrize("module", ["racing-now", "2nd_racing"])
def test_class_in_a_file_with_hyphen_or_digit_is_loaded(host: Host, module: str) -> None:
    (host.folder / f"{module}.py").write_text(RACING)
    host.start(tuner=host.advisor(f"{module}.Racing"))
    assert [number for number, _, _ in host.propose(0, 1)] == [0, 1]


def test_an_advisor_of_nni_2_sends_by_a_function(host: Host) -> None:
    host.start(tuner=host.advisor("old.Old"), history=[item(0, 1.0)])
    assert [(number, x) for number, x, _ in host.propose(5, 6)] == [(5, 1), (6, 2)]


def test_an_error_that_it_sends_is_one(host: Host) -> None:
    host.start(tuner=host.advisor("old.Old", fails=True))
    error = host.ask(verb="propose", ids=[0])["error"]
    assert error["message"] == "RuntimeError: the advisor sent Error: no idea"


def test_undefined_method_is_named(host: Host) -> None:
    (host.folder / "empty.py").write_text(
        "from nni.runtime.msg_dispatcher_base import MsgDispatcherBase\nclass Empty(MsgDispatcherBase): pass\n"
    )
    error = host.ask(**start(tuner=host.advisor("empty.Empty")))["error"]
    assert error["message"] == "NotImplementedError: Empty has to define handle_initialize."
