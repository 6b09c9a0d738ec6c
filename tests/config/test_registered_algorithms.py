"""Names for users' classes: kept in a file, resolved when a config is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nni_manager.config import registered_algorithms as registered
from nni_manager.config.experiment_file import from_canonical, load
from nni_manager.config.registered_algorithms import Registered
from nni_manager.domain.errors import ConfigInvalid, Conflict, InvalidInput, NotFound
from nni_manager.domain.experiment import ExperimentSpec

pytestmark = pytest.mark.unit


def tuner(name: str = "Mine", **fields: object) -> Registered:
    return Registered(**{"name": name, "kind": "tuner", "class_name": "mine.Mine", **fields})  # type: ignore[arg-type]


def read(data: Path, section: dict, *, elsewhere: bool = False) -> ExperimentSpec:
    config = {
        "searchSpace": {},
        "trialCommand": "true",
        "trialConcurrency": 1,
        "tuner": section,
        "trainingService": {"platform": "local"},
    }
    return load(json.dumps(config), directory=data, data_directory=data, elsewhere=elsewhere)


def test_nothing_is_registered_at_first(tmp_path: Path) -> None:
    assert registered.read_all(tmp_path) == () and registered.find(tmp_path, "tuner", "Mine") is None


def test_algorithm_is_registered_replaced_and_unregistered(tmp_path: Path) -> None:
    data = tmp_path / "made"
    assert registered.register(data, tuner(class_args={"a": 1})) is False
    assert registered.register(data, tuner("Other")) is False
    assert registered.register(data, tuner("MINE", class_name="b.B")) is True
    assert [one.class_name for one in registered.read_all(data)] == ["b.B", "mine.Mine"]
    assert registered.find(data, "tuner", "mine") == tuner("MINE", class_name="b.B")
    assert registered.find(data, "assessor", "mine") is None
    registered.unregister(data, "Mine")
    assert [one.name for one in registered.read_all(data)] == ["Other"]
    assert {path.name for path in data.iterdir()} == {"algorithms.json", ".algorithms.json.lock"}


@pytest.mark.parametrize("name", ["TPE", "random", "grid", "BatchTuner", "hyperband"])
def test_nni_names_cannot_be_registered(tmp_path: Path, name: str) -> None:
    with pytest.raises(Conflict, match="built-in"):
        registered.register(tmp_path, tuner(name))
    with pytest.raises(Conflict, match="cannot be removed"):
        registered.unregister(tmp_path, name)


@pytest.mark.parametrize("name", ["PPOTuner", "networkmorphism", "PBT"])
def test_a_name_of_nnis_that_is_not_built_in_may_be_given(tmp_path: Path, name: str) -> None:
    registered.register(tmp_path, tuner(name))
    assert read(tmp_path, {"name": name.lower()}).tuner.class_name == "mine.Mine"


def test_unregistering_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no algorithm Mine"):
        registered.unregister(tmp_path, "Mine")


@pytest.mark.parametrize("text", ["{", "[]", '{"algorithms": [{"colour": 1}]}', '{"algorithms": 1}'])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "algorithms.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"algorithms\.json cannot be read"):
        registered.read_all(tmp_path)


def test_config_names_registered_algorithm(tmp_path: Path) -> None:
    registered.register(tmp_path, tuner(code_directory="/opt/mine", class_args={"a": 1, "b": 2}))
    spec = read(tmp_path, {"name": "mine", "classArgs": {"b": 3}})
    assert spec.tuner.class_name == "mine.Mine" and spec.tuner.code_directory == "/opt/mine"
    assert spec.tuner.class_args == {"a": 1, "b": 3}
    assert from_canonical(spec.canonical) == spec, "it goes on when the name is forgotten"


def test_an_installed_class_has_no_folder(tmp_path: Path) -> None:
    registered.register(tmp_path, tuner())
    spec = read(tmp_path, {"name": "Mine"})
    assert spec.tuner.code_directory == "" and spec.tuner.class_args == {}
    assert from_canonical(spec.canonical) == spec


def test_registered_algorithm_without_arguments_refuses_them(tmp_path: Path) -> None:
    registered.register(tmp_path, tuner(accepts_class_args=False, class_args={"a": 1}))
    assert read(tmp_path, {"name": "Mine"}).tuner.class_args == {"a": 1}
    with pytest.raises(ConfigInvalid, match=r"tuner\.classArgs: Mine takes no arguments"):
        read(tmp_path, {"name": "Mine", "classArgs": {"b": 1}})


def test_an_unknown_name_is_left_to_a_manager_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="cannot find tuner 'Mine'"):
        read(tmp_path, {"name": "Mine"})
    assert read(tmp_path, {"name": "Mine"}, elsewhere=True).tuner.name == "Mine"
