"""What a program says of an experiment → the text of an experiment file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nni_manager.domain.errors import InvalidInput
from nni_manager.programs import configuration

pytestmark = pytest.mark.unit

SPACE = {"learning_rate": {"_type": "uniform", "_value": [0, 1]}}


def test_pythons_spelling_becomes_the_files() -> None:
    fields = {
        "max_trial_number": 3,
        "search_space": SPACE,
        "tuner": {"name": "TPE", "class_args": {"optimize_mode": "minimize"}},
    }
    found = json.loads(configuration.source(None, fields, None).text)
    assert found == {
        "maxTrialNumber": 3,
        "searchSpace": SPACE,
        "tuner": {"name": "TPE", "classArgs": {"optimize_mode": "minimize"}},
        "trainingService": {"platform": "local"},
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"trainingService": {"platform": "local"}}),
        ({"training_service": {"platform": "dlts"}}, {"trainingService": {"platform": "dlts"}}),
        ({"trainingServicePlatform": "dlts"}, {"trainingServicePlatform": "dlts"}),
    ],
)
def test_program_without_a_training_service_uses_this_machine(
    fields: dict[str, object], expected: dict[str, object]
) -> None:
    for config, own in ((None, fields), (fields, {})):
        assert json.loads(configuration.source(config, own, None).text) == expected


def test_file_without_a_training_service_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yml"
    file.write_text("trialConcurrency: 1\n")
    assert "trainingService" not in configuration.source(file, {"max_trial_number": 1}, None).text


def test_the_users_own_keys_stay_as_they_are() -> None:
    found = configuration.in_file_spelling(
        {"objectives": {"val_loss": "minimize"}, "training_service": {"machine_list": [{"user_name": "a"}]}}
    )
    assert found == {"objectives": {"val_loss": "minimize"}, "trainingService": {"machineList": [{"userName": "a"}]}}


def test_fields_come_on_top_of_a_file_whose_paths_start_at_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yml"
    file.write_text("trialConcurrency: 1\nmaxTrialNumber: 5\n")
    plain = configuration.source(file, {}, None)
    assert (plain.text, plain.directory, plain.file) == (file.read_text(), str(tmp_path), str(file))
    changed = configuration.source(str(file), {"max_trial_number": 9}, None)
    assert json.loads(changed.text) == {"trialConcurrency": 1, "maxTrialNumber": 9}
    assert changed.directory == str(tmp_path)


def test_a_text_is_told_from_a_path_by_its_line_break() -> None:
    found = configuration.source("trialConcurrency: 1\nmaxTrialNumber: 5\n", {}, None)
    assert found.directory == os.getcwd() and "maxTrialNumber" in found.text


def test_what_no_file_can_hold_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"^searchSpace: Object of type set"):
        configuration.source(None, {"search_space": {"x": {1, 2}}}, None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.yml"):
        configuration.source(tmp_path / "none.yml", {}, None)
