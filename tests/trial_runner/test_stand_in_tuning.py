"""What user tuners and assessors import from the stand-in."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.unit

STAND_IN = Path(__file__).parents[2] / "trial_runner" / "stand_in"


@pytest.fixture
def nni(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A fresh stand-in; what it leaves in the interpreter is taken back."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    modules = dict(sys.modules)
    for name in [name for name in modules if name.partition(".")[0] == "nni"]:
        del sys.modules[name]
    monkeypatch.syspath_prepend(STAND_IN)
    yield importlib.import_module("nni")
    for name in set(sys.modules) - set(modules):
        if name.startswith("nni"):
            del sys.modules[name]
    sys.modules.update({name: module for name, module in modules.items() if name.startswith("nni")})


def make_tuner(nni: ModuleType, proposals: list[object]) -> Any:
    class Listed(nni.tuner.Tuner):  # type: ignore[name-defined,misc]
        def generate_parameters(self, parameter_id: int, **kwargs: object) -> object:
            if parameter_id >= len(proposals):
                raise nni.NoMoreTrialError("the list is at its end")
            return proposals[parameter_id]

    return Listed()


def test_many_proposals_are_single_ones(nni: ModuleType) -> None:
    tuner = make_tuner(nni, ["a", "b", "c"])
    assert tuner.generate_multiple_parameters([0, 2], st_callback=None) == ["a", "c"]


def test_a_tuner_that_runs_out_answers_fewer(nni: ModuleType) -> None:
    assert make_tuner(nni, ["a", "b"]).generate_multiple_parameters([1, 2, 3]) == ["b"]
    assert make_tuner(nni, []).generate_multiple_parameters([0]) == []


def test_no_more_trials_keeps_its_text(nni: ModuleType) -> None:
    assert str(nni.NoMoreTrialError("enough")) == nni.NoMoreTrialError("enough").errorinfo == "enough"
    assert str(nni.NoMoreTrialError()) == "Search space fully explored"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("update_search_space", ({},)), ("generate_parameters", (0,)), ("receive_trial_result", (0, {}, 1.0))],
)
def test_missing_tuner_methods_are_named(nni: ModuleType, method: str, arguments: tuple[object, ...]) -> None:
    class Empty(nni.tuner.Tuner):  # type: ignore[name-defined,misc]
        pass

    with pytest.raises(NotImplementedError, match=rf"Empty has to define {method}\."):
        getattr(Empty(), method)(*arguments)


def test_missing_method_is_named_despite_other_attributes(nni: ModuleType) -> None:
    class Imputing(nni.tuner.Tuner):  # type: ignore[name-defined,misc]
        _missing = -1.0

    with pytest.raises(NotImplementedError, match=r"Imputing has to define generate_parameters\."):
        Imputing().generate_parameters(0)


def test_optional_tuner_methods_can_be_missing(nni: ModuleType) -> None:
    tuner = make_tuner(nni, [])
    tuner.trial_end(0, True)
    tuner.import_data([{"parameter": {}, "value": 1}])
    tuner.load_checkpoint()
    tuner.save_checkpoint()
    assert not hasattr(tuner, "_accept_customized")
    tuner._accept_customized_trials()
    assert tuner._accept_customized is True


def test_the_checkpoint_folder_comes_from_the_environment(
    nni: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (make_tuner(nni, []), nni.assessor.Assessor()):
        monkeypatch.setenv("NNI_CHECKPOINT_DIRECTORY", str(tmp_path))
        assert part.get_checkpoint_path() == str(tmp_path)
        monkeypatch.setenv("NNI_CHECKPOINT_DIRECTORY", str(tmp_path / "gone"))
        assert part.get_checkpoint_path() is None


def test_an_assessor_has_to_assess(nni: ModuleType) -> None:
    class Lazy(nni.assessor.Assessor):  # type: ignore[name-defined,misc]
        pass

    Lazy().trial_end("abcde", success=False)
    with pytest.raises(NotImplementedError, match="Lazy has to define assess_trial"):
        Lazy().assess_trial("abcde", [0.5])


def test_judgements_have_the_values_that_ours_are_compared_with(nni: ModuleType) -> None:
    assert [result.value for result in nni.assessor.AssessResult] == [True, False]


@pytest.mark.parametrize(("value", "number"), [(0.5, 0.5), (2, 2), ({"default": 0.25, "loss": 1}, 0.25)])
def test_the_number_in_a_result(nni: ModuleType, value: object, number: float) -> None:
    assert nni.utils.extract_scalar_reward(value) == number
    assert nni.utils.extract_scalar_history([value, value]) == [number, number]


def test_number_can_have_another_key(nni: ModuleType) -> None:
    assert nni.utils.extract_scalar_reward({"default": 1, "loss": 2}, "loss") == 2


@pytest.mark.parametrize("value", ["0.5", None, {"loss": 1}, {"default": "high"}, [1]])
def test_a_result_without_a_number_is_named(nni: ModuleType, value: object) -> None:
    with pytest.raises(RuntimeError, match=re.escape(repr(value)) + " contains no number"):
        nni.utils.extract_scalar_reward(value)


def test_optimize_modes_are_written_as_in_configurations(nni: ModuleType) -> None:
    mode = nni.utils.OptimizeMode
    assert mode("minimize") is mode.Minimize and mode("maximize") is mode.Maximize


def test_notes_of_a_tuner_are_taken_out_of_its_parameters(nni: ModuleType) -> None:
    noted = {"layer": {"_index": 1, "_value": {"_name": "conv", "size": {"_index": 0, "_value": 3}}}, "lr": 0.1}
    assert nni.utils.split_index(noted) == {"layer": {"_name": "conv", "size": 3}, "lr": 0.1}


def test_parameters_replace_defaults(nni: ModuleType) -> None:
    defaults = {"lr": 0.1, "layers": 2, "note": None}
    assert nni.utils.merge_parameter(defaults, {"lr": 1, "note": "x"}) is defaults
    assert defaults == {"lr": 1.0, "layers": 2, "note": "x"} and isinstance(defaults["lr"], float)
    arguments = argparse.Namespace(lr=0.1)
    assert nni.utils.merge_parameter(arguments, {"lr": 0.5}).lr == 0.5
    assert nni.utils.merge_parameter(arguments, None).lr == 0.5


@pytest.mark.parametrize("defaults", [{"lr": 0.1}, argparse.Namespace(lr=0.1)])
def test_parameter_without_matching_default_is_named(nni: ModuleType, defaults: Any) -> None:
    with pytest.raises(ValueError, match="'momentum' has no default: give it one"):
        nni.utils.merge_parameter(defaults, {"momentum": 0.9})
    with pytest.raises(ValueError, match=r"'lr' is 'high', but its default 0\.1 is of type float"):
        nni.utils.merge_parameter(defaults, {"lr": "high"})


def test_arguments_of_classes_are_checked(nni: ModuleType, tmp_path: Path) -> None:
    checks = nni.ClassArgsValidator()
    checks.validate_class_args(anything="goes")
    assert checks.choices("mode", "a", "b").validate("b") == "b"
    assert checks.range("eta", int, 1, 9).validate(9, ignore_extra_keys=True) == 9
    assert checks.path("space").validate(str(tmp_path)) == str(tmp_path)


def test_wrong_arguments_of_classes_are_named(nni: ModuleType) -> None:
    checks = nni.ClassArgsValidator()
    with pytest.raises(ValueError, match=r"mode should be one of \['a', 'b'\], not 'c'"):
        checks.choices("mode", "a", "b").validate("c")
    for value in (0, 10, 2.5):
        with pytest.raises(ValueError, match=f"eta should be of type int and from 1 to 9, not {value}"):
            checks.range("eta", int, 1, 9).validate(value)
    with pytest.raises(ValueError, match="space should be an existing path, not '/no/such/path'"):
        checks.path("space").validate("/no/such/path")
