"""What `resume` says of an experiment file that was edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config import edited_file, experiment_file
from nni_manager.domain.experiment import ExperimentSpec

pytestmark = pytest.mark.unit

FILE: dict[str, Any] = {
    "searchSpaceFile": "space.json",
    "trialCommand": "true",
    "trialConcurrency": 1,
    "maxTrialNumber": 3,
    "tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize", "seed": 1}},
    "trainingService": {"platform": "remote", "machineList": [{"host": "there", "user": "me", "password": "'1'"}]},
}


class Edited:
    """An experiment file in a folder, and the experiment that was made of it."""

    def __init__(self, folder: Path) -> None:
        self.path, self._folder = folder / "exp.yml", folder
        self.write_space(1)
        self.write()
        self.spec = self._read()
        self.origin: dict[str, str] = edited_file.record(self.spec.canonical, str(folder), "some/exp.yml")

    def write(self, **changed: object) -> None:
        self.path.write_text(json.dumps({**FILE, **changed}))

    def write_space(self, high: float) -> None:
        (self._folder / "space.json").write_text(json.dumps({"x": {"_type": "uniform", "_value": [0, high]}}))

    def look(self) -> str:
        found = edited_file.look("abc", self.origin, self.spec.canonical, self._folder)
        return "" if found is None else found.message

    def _read(self) -> ExperimentSpec:
        text = self.path.read_text()
        return experiment_file.load(text, directory=self._folder, working_directory=self._folder, data_directory=None)


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    return Edited(tmp_path)


def test_unchanged_or_removed_file_is_quiet(edited: Edited) -> None:
    assert edited.look() == ""
    edited.path.write_text(f"# another comment\n{edited.path.read_text()}")
    assert edited.look() == ""
    edited.spec = experiment_file.change(edited.spec, {"maxTrialNumber": 9})  # by `nnictl update`
    assert edited.look() == ""
    edited.path.unlink()
    assert edited.look() == ""


def test_edits_are_listed_with_advice(edited: Edited) -> None:
    edited.write(maxTrialNumber=9, tuner={"name": "TPE", "classArgs": {"optimize_mode": "maximize", "seed": 2}})
    told = edited.look()
    assert str(edited.path) in told and "These fields have no effect: maxTrialNumber, tuner.classArgs.seed." in told
    assert told.endswith("`nnictl update trialnum abc -v NUMBER`; for the others, create a new experiment")
    edited.write(trialCommand="false")
    assert edited.look().endswith("no effect: trialCommand. To change them, create a new experiment")


def test_edit_of_the_search_space_file_is_named(edited: Edited) -> None:
    edited.write_space(2)
    assert "no effect: searchSpace. To change them, run `nnictl update searchspace abc -f FILE`" in edited.look()


def test_edit_that_was_applied_is_quiet(edited: Edited) -> None:
    edited.write(maxTrialNumber=9)
    edited.spec = experiment_file.change(edited.spec, {"maxTrialNumber": 9})
    assert edited.look() == ""


def test_invalid_file_is_named(edited: Edited) -> None:
    edited.path.write_text("x: [")
    assert "It is not a valid experiment file any more" in edited.look() and "not valid YAML" in edited.look()


def test_text_without_a_file_leaves_no_record(edited: Edited) -> None:
    assert edited_file.record(edited.spec.canonical, "", "exp.yml") == {
        "experimentFile": "",
        "experimentFileDigest": "",
    }
    assert edited_file.record(edited.spec.canonical, "/x", "") == {"experimentFile": "", "experimentFileDigest": ""}
