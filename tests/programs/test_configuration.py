"""What a program says of an experiment → the text of an experiment file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from nni_manager.domain.errors import ConfigInvalid, InvalidInput, Problem
from nni_manager.programs import configuration
from nni_manager.programs.request import Source

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
    found, _ = configuration.in_file_spelling(
        {"objectives": {"val_loss": "minimize"}, "training_service": {"machine_list": [{"user_name": "a"}]}}
    )
    assert found == {"objectives": {"val_loss": "minimize"}, "trainingService": {"machineList": [{"userName": "a"}]}}


def test_fields_override_file_and_paths_start_at_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yml"
    file.write_text("trialConcurrency: 1\nmaxTrialNumber: 5\n")
    plain = configuration.source(file, {}, None)
    assert (plain.text, plain.directory, plain.file) == (file.read_text(), str(tmp_path), str(file))
    changed = configuration.source(str(file), {"max_trial_number": 9}, None)
    assert json.loads(changed.text) == {"trialConcurrency": 1, "maxTrialNumber": 9}
    assert changed.directory == str(tmp_path)


def test_line_break_distinguishes_text_from_path() -> None:
    found = configuration.source("trialConcurrency: 1\nmaxTrialNumber: 5\n", {}, None)
    assert found.directory == os.getcwd() and "maxTrialNumber" in found.text


def test_what_no_file_can_hold_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"^search_space\.x: an object cannot be sent"):
        configuration.source(None, {"search_space": {"x": {"_type": "choice", "_value": [object()]}}}, None)


def test_numbers_of_numpy_become_plain() -> None:
    given = {"max_trial_number": np.int64(3), "trial_code_directory": Path("code"), "trainingServicePlatform": "local"}
    expected = '{"maxTrialNumber": 3, "trialCodeDirectory": "code", "trainingServicePlatform": "local"}'
    assert configuration.source(given, {}, None).text == expected


def refused(source: Source, *problems: Problem) -> str:
    assert source.spelling is not None
    return str(source.spelling.refusal(ConfigInvalid(problems)))


def test_problem_of_fields_has_the_programs_names() -> None:
    service = {"platform": "remote", "machine_list": [{"use_active_gpu": 3}]}
    given = {"search_space": SPACE, "training_service": service, "tuner": {"name": "TPE", "class_args": {}}}
    source = configuration.source(given, {}, None)
    for field, expected in (
        ("searchSpace.machineList", "search_space.machineList: is wrong"),
        ("trainingService.machineList[0].useActiveGpu", "training_service.machine_list[0].use_active_gpu: is wrong"),
        ("tuner.classArgs.seed", "tuner.class_args.seed: is wrong"),
        ("trialCommand", "trialCommand: is wrong"),
    ):
        assert refused(source, Problem(message="is wrong", field=field, line=1)) == expected


def test_problem_of_a_file_has_its_own_line(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yml"
    file.write_text("maxTrialNumber: 5\ntuner:\n  name: TP\n")
    source = configuration.source(file, {"max_trial_number": 0}, None)
    below = Problem(message="is wrong", field="tuner.name", file=str(file), line=1)
    assert refused(source, below) == f"{file}:3: tuner.name: is wrong"
    given = Problem(message="is wrong", field="maxTrialNumber", file=str(file), line=1)
    assert refused(source, given) == "max_trial_number: is wrong"
    other = Problem(message="is wrong", field="lr", file="space.json", line=7)
    assert refused(source, other) == "space.json:7: lr: is wrong"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config:1: maxTrialNumber: is odd", "max_trial_number: is odd"),
        ("maxTrialNumber must be odd", "max_trial_number must be odd"),
        ("the daemon is odd", "the daemon is odd"),
    ],
)
def test_sentence_has_the_programs_names(text: str, expected: str) -> None:
    spelling = configuration.source({"max_trial_number": 3}, {}, None).spelling
    assert spelling is not None and spelling.sentence(text) == expected
    assert str(spelling.refusal(InvalidInput(text))) == expected


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.yml"):
        configuration.source(tmp_path / "none.yml", {}, None)
