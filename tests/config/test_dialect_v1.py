"""NNI's first config format: what its files become, what is carried, and how mixtures are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config.dialects import dialect_v1
from nni_manager.config.experiment_file import convert_file, load, read_file
from nni_manager.config.sections.experiment_model import FIELDS
from nni_manager.domain.errors import ConfigInvalid, Problem
from tests.config.test_nni_examples import EXAMPLES

pytestmark = pytest.mark.unit

CONVERTED: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "converted.yml").read_text())
#: File → the section that is stored, written by hand.
SECTIONS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "canonical_sections.yml").read_text().replace("DIR", str(EXAMPLES))
)
#: Algorithms that this version does not have.
NOT_YET = {"v1-local.yml"}
#: The fields of NNI 3.0's `ExperimentConfig`; `tests/upstream` compares them.
NNI_FIELDS = {
    "experimentName",
    "experimentType",
    "searchSpaceFile",
    "searchSpace",
    "trialCommand",
    "trialCodeDirectory",
    "trialConcurrency",
    "trialGpuNumber",
    "maxExperimentDuration",
    "maxTrialNumber",
    "maxTrialDuration",
    "nniManagerIp",
    "useAnnotation",
    "debug",
    "logLevel",
    "experimentWorkingDirectory",
    "tunerGpuIndices",
    "tuner",
    "assessor",
    "advisor",
    "trainingService",
    "sharedStorage",
}
MINIMAL: dict[str, Any] = {
    "authorName": "a",
    "experimentName": "e",
    "trialConcurrency": 1,
    "trainingServicePlatform": "local",
    "searchSpacePath": "space.json",
    "tuner": {"builtinTunerName": "TPE"},
    "trial": {"command": "python3 fit.py", "codeDir": "."},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "space.json").write_text("{}")
    for name in ("my_tuner.py", "fit.py"):
        (tmp_path / name).touch()
    return tmp_path


def text(**fields: Any) -> str:
    return yaml.safe_dump(
        {name: value for name, value in {**MINIMAL, **fields}.items() if value is not None}, sort_keys=False
    )


def problems(folder: Path, **fields: Any) -> dict[str, Problem]:
    with pytest.raises(ConfigInvalid) as refused:
        load(text(**fields), directory=folder)
    return {problem.field: problem for problem in refused.value.problems}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_file_becomes_the_second_format(name: str) -> None:
    assert convert_file(EXAMPLES / name, everything=True)[0] == CONVERTED[name]


@pytest.mark.parametrize("name", SECTIONS)
def test_converted_training_service_equals_the_expected_one(name: str) -> None:
    assert read_file(EXAMPLES / name).spec.canonical["trainingService"] == SECTIONS[name]


def test_every_example_has_an_expected_conversion() -> None:
    assert SECTIONS.keys() == CONVERTED.keys() - NOT_YET


@pytest.mark.parametrize("name", sorted(CONVERTED.keys() - NOT_YET))
def test_both_forms_are_the_same_experiment(name: str) -> None:
    first = load((EXAMPLES / name).read_text(), directory=EXAMPLES)
    second = load(yaml.safe_dump(CONVERTED[name]), directory=EXAMPLES)
    assert first == second
    assert first.canonical == second.canonical


def test_fields_that_nni_loses_are_converted(folder: Path) -> None:
    spec = load(
        text(
            maxTrialDuration="30m",
            logDir=".",
            nniManagerIp="192.0.2.9",
            logCollection="http",
            multiThread=True,
            versionCheck=False,
            maxTrialRetries=2,
            keepCheckpoints="best 2",
        ),
        directory=folder,
    )
    assert (spec.max_trial_duration_s, spec.working_directory) == (1800, str(folder.resolve()))
    assert (spec.manager_ip, spec.log_collection, spec.version_check) == ("192.0.2.9", "http", False)
    assert spec.canonical["deprecated"] == {"multiThread": True}
    assert (spec.max_trial_retries, spec.kept_checkpoints) == (2, 2)
    assert [(one.code, one.field) for one in spec.warnings] == [("NO_EFFECT", "multiThread")]
    own = {"codeDir": ".", "classFileName": "bees.py", "className": "BeeTuner"}
    (folder / "bees.py").touch()
    spec = load(text(multiThread=True, tuner=own), directory=folder)
    assert spec.multi_thread and spec.warnings == ()


def test_log_directory_need_not_be_there(folder: Path) -> None:
    assert load(text(logDir="no/such"), directory=folder).working_directory == str(folder.resolve() / "no/such")


def test_auto_without_tuner_uses_given_direction(folder: Path) -> None:
    spec = load(text(tuner=None, optimizeMode="maximize"), directory=folder)
    assert (spec.tuner.name, spec.tuner.class_args) == ("Auto", {"optimize_mode": "maximize"})


def test_user_class_is_converted(folder: Path) -> None:
    own = {"codeDir": ".", "classFileName": "my_tuner.py", "className": "Mine", "classArgs": {"k": 1}}
    tuner = {**own, "gpuIndices": "0,1", "includeIntermediateResults": True}
    spec = load(text(tuner=tuner, searchSpacePath=None), directory=folder)
    assert (spec.tuner.class_name, spec.tuner.code_directory) == ("my_tuner.Mine", str(folder.resolve()))
    assert (spec.tuner.class_args, spec.tuner_gpu_indices, spec.search_space) == ({"k": 1}, (0, 1), {})
    (warned,) = (one for one in spec.warnings if one.code == "NO_EFFECT")
    assert (warned.field, warned.line > 1) == ("tuner.includeIntermediateResults", True)
    assert "intermediate result of a trial that is stopped early" in warned.message


ALGORITHMS: list[tuple[dict[str, Any], str, str]] = [
    ({"builtinTunerName": "TPE", "className": "Mine"}, "tuner.className", "builtinTunerName is set, too; keep one"),
    ({"codeDir": ".", "className": "M"}, "tuner.classFileName", "is required and not set; your own class requires"),
    ({"codeDir": ".", "classFileName": "m.txt", "className": "M"}, "tuner.classFileName", "must name a Python file"),
    ({"codeDir": ".", "classFileName": "no.py", "className": "M"}, "tuner.classFileName", "cannot find file"),
    ({"builtinTunrName": "TPE"}, "tuner.builtinTunrName", "did you mean builtinTunerName?"),
    ({}, "tuner.builtinTunerName", "is required and not set; name a built-in tuner"),
]


@pytest.mark.parametrize(("tuner", "field", "words"), ALGORITHMS, ids=range(len(ALGORITHMS)))
def test_wrong_algorithm_is_refused(folder: Path, tuner: dict[str, Any], field: str, words: str) -> None:
    found = problems(folder, tuner=tuner)
    assert list(found) == [field]
    assert words in found[field].message


OTHERS: list[tuple[dict[str, Any], str, str]] = [
    ({"multiPhase": True}, "multiPhase", "multi-phase trials are not supported"),
    ({"useAnnotation": True}, "useAnnotation", "code annotation is not supported"),
    ({"logDir": "/dev/null/logs"}, "logDir", "cannot be created"),
    ({"logCollection": "ftp"}, "logCollection", "must be 'http' or 'none'"),
    ({"maxExecDuration": "soon"}, "maxExecDuration", "must be a duration"),
    ({"maxTrialNum": 0}, "maxTrialNum", "must be from 1 to"),
    ({"trial": None}, "trial", "is required and not set"),
    ({"trial": {"command": "x"}}, "trial.codeDir", "is required and not set"),
    ({"trainingServicePlatform": "dlc"}, "trainingServicePlatform", "dlc does not exist in NNI's first format"),
    ({"trainingServicePlatform": "hybrid"}, "hybridConfig.trainingServicePlatforms", "list at least one platform"),
    ({"advisor": {"builtinAdvisorName": "BOHB"}}, "tuner", "advisor is set, too"),
    (
        {"tuner": {"builtinTunerName": "Hyperband", "classArgs": {"R": 9}}},
        "tuner.classArgs",
        "requires optimize_mode with Hyperband in NNI's first format; add it",
    ),
    ({"localConfig": {"gpuIndices": []}}, "localConfig.gpuIndices", "must name at least one GPU"),
    ({"localConfig": {"maxTrialNumberPerGpu": 2}}, "localConfig.maxTrialNumberPerGpu", "write maxTrialNumPerGpu"),
]


@pytest.mark.parametrize(("fields", "field", "words"), OTHERS, ids=range(len(OTHERS)))
def test_mistake_in_first_format_is_refused(folder: Path, fields: dict[str, Any], field: str, words: str) -> None:
    assert words in problems(folder, **fields)[field].message


def test_mixed_formats_are_refused_with_their_lines(folder: Path) -> None:
    found = problems(folder, trainingService={"platform": "local"}, maxTrialNumber=5)
    assert found["trainingService"].line == 11 and found["maxTrialNumber"].line == 13
    mark = (
        "belongs to NNI's second config format, and trainingServicePlatform in line 4 makes this file one of the first"
    )
    assert found["trainingService"].message.startswith(mark)
    assert found["maxTrialNumber"].message == f"{mark}; there it is maxTrialNum"


def test_first_format_without_platform_names_missing_field(folder: Path) -> None:
    found = problems(folder, trainingServicePlatform=None)
    assert "which requires trainingServicePlatform" in found["trial"].message
    assert found["searchSpacePath"].message.endswith("here it is searchSpaceFile")


def test_field_without_effect_is_named(tmp_path: Path, folder: Path) -> None:
    file = folder / "bee.yml"
    file.write_text(text(description="d", versionCheck=True, trial={**MINIMAL["trial"], "nasMode": "classic_mode"}))
    losses = {loss.field: loss.message for loss in convert_file(file)[1]}
    assert losses.keys() == {"authorName", "description", "versionCheck", "trial.nasMode"}
    with pytest.raises(ConfigInvalid, match="has NNI's second format already"):
        convert_file(EXAMPLES / "v2-aml.yml")


def test_conversion_prints_only_fields_of_nni() -> None:
    """Each field of ours, also one that is new: NNI's loader refuses a file that has it."""
    assert set(dialect_v1.for_nni(dict.fromkeys(FIELDS), [])) == NNI_FIELDS


def test_fields_unknown_to_nni_are_named(folder: Path) -> None:
    ours = {
        "maxSameFailures": 3,
        "maxUnusableResults": 2,
        "maxFailedTrials": "20%",
        "maxLogSize": "10MB",
        "callerEnvironment": ["HOME"],
    }
    ours |= {"warmStart": ["abcdefgh"]}
    file = folder / "bee.yml"
    file.write_text(text(**ours))
    converted, losses = convert_file(file)
    assert converted.keys().isdisjoint(ours)
    assert {loss.field for loss in losses} == {"authorName", *ours}


def test_section_of_a_platform_off_the_list_is_accepted(folder: Path) -> None:
    machines = [{"ip": "h", "username": "u", "passwd": "p"}]
    fields = {"trainingServicePlatform": "hybrid", "machineList": machines}
    spec = load(text(**fields, hybridConfig={"trainingServicePlatforms": ["local"]}), directory=folder)
    assert [platform.service for platform in spec.platforms] == ["local"]
