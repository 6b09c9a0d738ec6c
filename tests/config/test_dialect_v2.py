"""Every field of the top level: what it takes, what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config.experiment_file import from_canonical, load
from nni_manager.config.reading import document
from nni_manager.config.sections import field_places, section
from nni_manager.domain.errors import ConfigInvalid, Problem
from nni_manager.domain.experiment import ExperimentSpec
from tests.config.conftest import MINIMAL

pytestmark = pytest.mark.unit

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]

GOOD: list[tuple[str, Any, str, Any]] = [
    ("experimentName", "hive", "name", "hive"),
    ("experimentName", None, "name", None),
    ("experimentName", "", "name", None),
    ("trialCommand", "FOO=1 python3 fit.py --all", "trial_command", "FOO=1 python3 fit.py --all"),
    ("trialCommand", "{ ./fit; }", "trial_command", "{ ./fit; }"),
    ("trialCommand", "${RUN:-./fit}", "trial_command", "${RUN:-./fit}"),
    ("trialConcurrency", 1, "trial_concurrency", 1),
    ("trialConcurrency", 100_000, "trial_concurrency", 100_000),
    ("trialGpuNumber", None, "trial_gpu_number", None),
    ("trialGpuNumber", 0, "trial_gpu_number", 0),
    ("maxExperimentDuration", 90, "max_experiment_duration_s", 90),
    ("maxExperimentDuration", "1.5H", "max_experiment_duration_s", 5400),
    ("maxExperimentDuration", None, "max_experiment_duration_s", None),
    ("maxTrialNumber", 1, "max_trial_number", 1),
    ("maxTrialNumber", 999_999_999, "max_trial_number", 999_999_999),
    ("maxTrialNumber", None, "max_trial_number", None),
    ("maxTrialDuration", "0.1s", "max_trial_duration_s", 1),
    ("maxTrialDuration", "2d", "max_trial_duration_s", 172800),
    ("maxTrialRetries", 0, "max_trial_retries", 0),
    ("maxTrialRetries", 3, "max_trial_retries", 3),
    ("maxSameFailures", None, "max_same_failures", 10),
    ("maxSameFailures", 0, "max_same_failures", 0),
    ("maxFailedTrials", None, "max_failed_trials", None),
    ("maxUnusableResults", None, "max_unusable_results", 5),
    ("maxUnusableResults", 0, "max_unusable_results", 0),
    ("maxFailedTrials", 0, "max_failed_trials", 0),
    ("keepCheckpoints", None, "kept_checkpoints", None),
    ("keepCheckpoints", "all", "kept_checkpoints", None),
    ("keepCheckpoints", "none", "kept_checkpoints", 0),
    ("keepCheckpoints", "best 12", "kept_checkpoints", 12),
    ("gracePeriod", 0, "grace_period_s", 0.0),
    ("gracePeriod", "0s", "grace_period_s", 0.0),
    ("gracePeriod", 0.25, "grace_period_s", 0.25),
    ("gracePeriod", "1.5m", "grace_period_s", 90.0),
    ("metricGrace", "0.5s", "metric_grace_s", 0.5),
    ("versionCheck", False, "version_check", False),
    ("debug", True, "debug", True),
    ("debug", True, "log_level", "debug"),
    ("logLevel", "fatal", "log_level", "fatal"),
    ("tunerGpuIndices", 0, "tuner_gpu_indices", (0,)),
    ("tunerGpuIndices", "0, 2", "tuner_gpu_indices", (0, 2)),
    ("tunerGpuIndices", [3, 1], "tuner_gpu_indices", (3, 1)),
    ("tunerGpuIndices", None, "tuner_gpu_indices", None),
    ("useAnnotation", False, "name", None),
    ("multiPhase", False, "name", None),
    ("experimentType", "hpo", "name", None),
    ("searchSpace", {}, "search_space", {}),
    ("experimentWorkingDirectory", "/tmp/nowhere/yet", "working_directory", "/tmp/nowhere/yet"),
    ("trialCodeDirectory", "/", "trial_code_directory", "/"),
    ("assessor", None, "assessor", None),
    ("deprecated", {"multiThread": True}, "name", None),
]

BAD: list[tuple[str, Any, str]] = [
    ("experimentName", 2024, "must be text, not a whole number; put it in quotes"),
    ("experimentName", " ", "must not be empty"),
    ("experimentType", "nas", "neural architecture search is not supported"),
    ("experimentType", "bees", "must be 'hpo' or 'nas', not 'bees'"),
    ("searchSpace", [], "must be a mapping of names to values, not a list"),
    ("searchSpace", "x", "must be a mapping of names to values, not text"),
    ("searchSpace", {"x": float("inf")}, "infinite or not a number"),
    ("searchSpace", None, "is required and not set"),
    ("trialCommand", "", "must not be empty"),
    ("trialCommand", ["python3", "fit.py"], "must be text, not a list"),
    ("trialCommand", None, "is required and not set"),
    ("trialCommand", "true\0", "holds a NUL character"),
    ("experimentName", "hi\0ve", "holds a NUL character"),
    ("nniManagerIp", "10.0.0.1\0", "holds a NUL character"),
    ("trialCodeDirectory", "/\0", "holds a NUL character"),
    ("experimentWorkingDirectory", "/\0", "holds a NUL character"),
    ("searchSpaceFile", "/\0", "holds a NUL character"),
    ("trialCodeDirectory", "no/such/folder", "cannot find folder"),
    ("trialCodeDirectory", 5, "must be text"),
    ("trialConcurrency", None, "is required and not set"),
    ("trialConcurrency", 0, "must be from 1 to 100000, not 0"),
    ("trialConcurrency", 100_001, "must be from 1 to 100000, not 100001"),
    ("trialConcurrency", True, "must be a whole number, not true or false"),
    ("trialConcurrency", "2", "must be a whole number, not text"),
    ("trialConcurrency", 2.0, "must be a whole number, not a fraction"),
    ("trialGpuNumber", -1, "must be at least 0"),
    ("trialGpuNumber", False, "must be a whole number"),
    ("trialGpuMemory", "4 elephants", "must be an amount of memory"),
    ("maxExperimentDuration", 0, "must be longer than 0"),
    ("maxExperimentDuration", "0m", "must be longer than 0"),
    ("maxExperimentDuration", -5, "must be a duration such as"),
    ("maxExperimentDuration", "10", "must be a duration such as"),
    ("maxExperimentDuration", "1w", "must be a duration such as"),
    ("maxExperimentDuration", True, "must be a number, not true or false"),
    ("maxExperimentDuration", float("nan"), "must be a finite number"),
    ("maxTrialNumber", 0, "must be from 1 to 999999999, not 0"),
    ("maxTrialNumber", 10**9, "must be from 1 to 999999999, not 1000000000"),
    ("maxTrialNumber", 1.5, "must be a whole number"),
    ("maxTrialDuration", "soon", "must be a duration such as"),
    ("maxTrialRetries", -1, "must be at least 0"),
    ("maxTrialRetries", "2", "must be a whole number"),
    ("maxSameFailures", 1001, "must be from 0 to 1000, not 1001"),
    ("maxFailedTrials", -1, "must be at least 0"),
    ("maxUnusableResults", -1, "must be from 0 to 1000, not -1"),
    ("maxFailedTrials", "100%", "must be a whole number, or a percentage below 100 such as 20%, not '100%'"),
    ("maxFailedTrials", "20", "must be a whole number, or a percentage"),
    ("keepCheckpoints", "best", "must be 'all', 'none', or 'best' and a number such as 'best 3', not 'best'"),
    ("keepCheckpoints", "best 0", "must be 'all', 'none', or 'best' and a number"),
    ("keepCheckpoints", 3, "must be 'all', 'none', or 'best' and a number such as 'best 3', not a whole number"),
    ("gracePeriod", -1, "must be a duration such as"),
    ("gracePeriod", "5 parsecs", "must be a duration such as"),
    ("metricGrace", [], "must be a number, not a list"),
    ("versionCheck", "no", "must be true or false, not text; write false"),
    ("nniManagerIp", 10, "must be text"),
    ("useAnnotation", True, "code annotation is not supported"),
    ("useAnnotation", "yes", "must be true or false"),
    ("multiPhase", True, "multi-phase trials are not supported"),
    ("debug", 1, "must be true or false, not a whole number"),
    ("logLevel", "loud", "must be 'fatal', 'error', 'warning', 'info', 'debug' or 'trace', not 'loud'"),
    ("logLevel", 3, "must be 'fatal'"),
    ("experimentWorkingDirectory", 3, "must be text"),
    ("experimentWorkingDirectory", "n" * 300, "cannot be created: File name too long"),
    ("tunerGpuIndices", [], "must name at least one GPU"),
    ("tunerGpuIndices", [0, 0], "names GPU 0 twice"),
    ("tunerGpuIndices", -1, "negative"),
    ("tunerGpuIndices", [True], "must be GPU indices such as"),
    ("tunerGpuIndices", "0,x", "must be GPU indices such as"),
    ("tuner", None, "is required and not set"),
    ("tuner", "TPE", "must be a mapping such as {name: Random}, not text"),
    ("assessor", "Medianstop", "must be a mapping such as {name: "),
    ("trainingService", None, "is required and not set"),
    ("trainingService", "local", "must be a mapping such as {platform: local}"),
    ("trainingService", [], "is an empty list"),
    ("sharedStorage", "NFS", "must be a mapping such as {storageType: NFS"),
    ("deprecated", 1, "must be a mapping"),
]


@pytest.mark.parametrize(("field", "value", "attribute", "expected"), GOOD)
def test_good_value_is_read(load_with: Load, field: str, value: object, attribute: str, expected: object) -> None:
    assert getattr(load_with(**{field: value}), attribute) == expected


def test_share_without_max_trial_number_is_refused(refusals: Refusals, load_with: Load) -> None:
    (problem,) = refusals(maxFailedTrials="20%")
    assert problem.field == "maxFailedTrials" and "a percentage requires maxTrialNumber" in problem.message
    assert load_with(maxFailedTrials="20%", maxTrialNumber=9).max_failed_trials == 1


@pytest.mark.parametrize(("field", "value", "words"), BAD)
def test_bad_value_is_refused(refusals: Refusals, field: str, value: object, words: str) -> None:
    fields = {"searchSpace": None} if field == "searchSpaceFile" else {}
    [problem] = refusals(**{"maxTrialNumber": 5, **fields, field: value})
    assert (problem.field, problem.file) == (field, "bee.yml")
    assert words in problem.message
    assert problem.line > 0


def test_defaults(load_with: Load, tmp_path: Path) -> None:
    spec = load_with()
    assert spec.trial_code_directory == str(tmp_path.resolve())
    assert (spec.trial_gpu_number, spec.max_trial_number, spec.assessor) == (None, None, None)
    assert (spec.debug, spec.log_level, spec.version_check) == (False, "info", True)
    assert "trialGpuNumber" not in spec.canonical and "gracePeriod" not in spec.canonical


def test_zero_gpus_and_unset_gpus_differ(load_with: Load) -> None:
    zero, unset = load_with(trialGpuNumber=0), load_with(trialGpuNumber=None)
    assert (zero.trial_gpu_number, unset.trial_gpu_number) == (0, None)
    assert (zero.canonical["trialGpuNumber"], "trialGpuNumber" in unset.canonical) == (0, False)
    assert zero.platforms[0].settings["trialGpuNumber"] == 0
    assert "trialGpuNumber" not in unset.platforms[0].settings


@pytest.mark.parametrize("below", ["", "sub/sub", "broken"])
def test_working_directory_below_a_file_is_refused(refusals: Refusals, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to("file/sub")
    wanted = "broken" if below == "broken" else f"file/{below}".rstrip("/")
    [problem] = refusals(experimentWorkingDirectory=wanted)
    assert (problem.file, problem.field) == ("bee.yml", "experimentWorkingDirectory") and problem.line > 0
    assert f"cannot be created: {tmp_path.resolve() / 'file'} is not a folder" in problem.message


def test_working_directory_without_permission_is_refused(
    refusals: Refusals, load_with: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: not path.endswith("shut"))  # the tests may run as root
    for wanted in ("shut", "shut/sub"):
        [problem] = refusals(experimentWorkingDirectory=wanted)
        assert "you may not write to" in problem.message
    canonical = {**load_with().canonical, "experimentWorkingDirectory": str(tmp_path / "shut")}
    assert from_canonical(canonical).working_directory == str(tmp_path / "shut")
    text = json.dumps({**MINIMAL, "experimentWorkingDirectory": "shut"})
    load(text, directory=tmp_path, elsewhere=True)  # what may be made there, the other machine knows
    load_with(experimentWorkingDirectory="later/on")
    assert not (tmp_path / "later").exists()


def test_paths_start_at_the_file_and_links_are_resolved(load_with: Load, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    spec = load_with(trialCodeDirectory="link", experimentWorkingDirectory="~/hive")
    assert spec.trial_code_directory == str((tmp_path / "real").resolve())
    assert spec.working_directory == str(Path.home().resolve() / "hive")


@pytest.mark.parametrize("key", ["TRIALCOMMAND", "trial_command", "TrialCommand", "tRiAl__CoMmAnd_"])
def test_case_and_underscores_of_names_are_ignored(load_with: Load, key: str) -> None:
    assert load_with(trialCommand=None, **{key: "x"}).trial_command == "x"


def test_two_spellings_of_one_field_are_refused(refusals: Refusals) -> None:
    [problem] = refusals(trial_command="x")
    assert (problem.field, problem.line) == ("trial_command", 13)
    assert "another spelling of trialCommand" in problem.message


def test_the_command_may_stand_in_the_platforms_section(load_with: Load) -> None:
    spec = load_with(trialCommand=None, trainingService={"platform": "local", "trial_command": "./fit"})
    assert spec.trial_command == "./fit"
    assert "trialCommand" not in spec.canonical


def test_value_of_the_platform_section_wins(load_with: Load) -> None:
    spec = load_with(trialGpuNumber=3, trainingService={"platform": "local", "trialGpuNumber": 0})
    assert (spec.trial_gpu_number, spec.canonical["trialGpuNumber"]) == (0, 3)


def test_a_misspelled_required_field_is_one_problem(refusals: Refusals) -> None:
    [problem] = refusals(trialCommand=None, trialComand="x")
    assert (problem.field, problem.message) == ("trialComand", "unknown field; did you mean trialCommand?")


def test_unknown_field_lists_known_fields(refusals: Refusals) -> None:
    [problem] = refusals(honey=1)
    assert "unknown field; fields here: experimentName, " in problem.message


def test_stored_experiment_may_hold_values_refused_now(load_with: Load) -> None:
    assert from_canonical({**load_with().canonical, "experimentName": "hi\0ve"}).name == "hi\0ve"


def test_secrets_of_a_config_are_in_no_repr(load_with: Load) -> None:
    assert "FOO=hunter2" not in repr(load_with(trialCommand="x").platforms)
    spec = load_with(trainingService={"platform": "local", "trialCommand": "FOO=hunter2 x"})
    assert "hunter2" not in repr(spec.platforms)


SHARED = {
    "storageType": "NFS",
    "remoteMountPoint": "mnt",
    "localMounted": "usermount",
    "nfsServer": "files",
    "exportedDirectory": "/data",
}


def test_a_relative_mount_point_starts_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    config = {**MINIMAL, "trialCodeDirectory": "code", "sharedStorage": {**SHARED, "localMountPoint": "../team/data"}}
    storage = load(yaml.safe_dump(config), directory=tmp_path).shared_storage
    assert storage is not None and storage["localMountPoint"] == str(tmp_path.parent / "team" / "data")


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("", "0700"),
        ("mode: 0711", "0711"),
        ("mode: '0711'", "0711"),
        ("mode: 0o711", "0711"),
        ("mode: 0777", None),
        ("mode: open", None),
    ],
)
def test_the_mode_of_folders_on_shared_storage(tmp_path: Path, written: str, mode: str | None) -> None:
    (tmp_path / "code").mkdir()
    shared = {**SHARED, "localMountPoint": "../team/data"}
    text = yaml.safe_dump({**MINIMAL, "trialCodeDirectory": "code", "sharedStorage": shared}, sort_keys=False)
    text = text.replace("  storageType: NFS\n", f"  storageType: NFS\n  {written}\n")
    if mode is None:
        with pytest.raises(ConfigInvalid, match=r"sharedStorage\.mode: "):
            load(text, directory=tmp_path)
    else:
        storage = load(text, directory=tmp_path).shared_storage
        assert storage is not None and storage["mode"] == mode


def test_caller_environment_is_a_list_of_names(load_with: Load) -> None:
    assert load_with(callerEnvironment=["PATH", "PATH", "HOME"]).caller_environment == ("PATH", "HOME")
    assert load_with(callerEnvironment=[]).kept_of({"A": "1"}) == {}
    assert load_with().kept_of({"A": "1"}) == {"A": "1"}
    for wrong in ("PATH", [1], ["A=B"], [""]):
        with pytest.raises(ConfigInvalid, match="must be a list of names of environment variables"):
            load_with(callerEnvironment=wrong)


def test_warm_start_is_a_list_of_ids(load_with: Load) -> None:
    assert load_with(warmStart=["abcdefgh", "X-1", "abcdefgh"]).warm_start == ("abcdefgh", "X-1")
    assert load_with().warm_start == ()
    for wrong in ("abcdefgh", [12345678], ["../x"], [""], ["a" * 33]):
        with pytest.raises(ConfigInvalid, match="warmStart: must be a list of experiment ids"):
            load_with(warmStart=wrong)


def test_mount_point_in_code_is_refused_with_place(tmp_path: Path) -> None:
    config = {**MINIMAL, "sharedStorage": {**SHARED, "localMountPoint": "mnt"}}
    with pytest.raises(ConfigInvalid) as refused:
        load(yaml.safe_dump(config), directory=tmp_path)
    (problem,) = refused.value.problems
    words = (
        f"is {tmp_path}/mnt, and must not lie in trialCodeDirectory ({tmp_path}); relative paths start at {tmp_path}"
    )
    assert (problem.field, problem.message) == ("sharedStorage.localMountPoint", words)


def test_relative_mount_point_is_refused_for_a_manager_elsewhere(tmp_path: Path) -> None:
    config = {**MINIMAL, "sharedStorage": {**SHARED, "localMountPoint": "mnt"}}
    with pytest.raises(ConfigInvalid, match="must be an absolute path on the manager's machine, such as /mnt/data"):
        load(yaml.safe_dump(config), directory=tmp_path, elsewhere=True)


def test_very_many_unknown_fields_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60,000 took 40 s in a thread of the daemon."""
    folded: list[str] = []

    def counting(name: str) -> str:
        folded.append(name)
        return document.fold(name)

    monkeypatch.setattr(section, "fold", counting)
    monkeypatch.setattr(field_places, "fold", counting)
    config = {**MINIMAL, **{f"k{number}": 1 for number in range(3000)}}
    with pytest.raises(ConfigInvalid) as refused:
        load(yaml.safe_dump(config), directory=tmp_path)
    assert len(refused.value.problems) == 100
    assert len(folded) < 200_000


@pytest.mark.parametrize(
    ("fields", "field", "where"),
    [
        (
            {"trainingService": {"platform": "local", "maxTrialNumber": 3}},
            "trainingService.maxTrialNumber",
            "at the top of the file",
        ),
        ({"gpuIndices": [0]}, "gpuIndices", "in trainingService"),
        ({"tuner": {"name": "Random", "optimize_mode": "maximize"}}, "tuner.optimize_mode", "in tuner.classArgs"),
        (
            {"trainingService": {"platform": "remote", "host": "h", "machineList": [{"host": "h", "user": "u"}]}},
            "trainingService.host",
            "in each entry of trainingService.machineList",
        ),
        ({"trainingService": None, "platform": "local"}, "platform", "in trainingService"),
        ({"tuner": None, "name": "tpe"}, "name", "in tuner"),
        ({"name": "Medianstop"}, "name", "in assessor"),
        ({"tuner": None, "className": "mine.Tuner"}, "className", "in tuner"),
        ({"tuner": {"name": "TPE"}, "tpe_args": {}}, "tpe_args", "in tuner.classArgs"),
        ({"nfsServer": "there"}, "nfsServer", "in sharedStorage"),
        ({"virtualCluster": "x"}, "virtualCluster", "in trainingService of platform openpai"),
    ],
)
def test_a_field_at_the_wrong_level_is_refused_with_its_place(
    tmp_path: Path, fields: dict[str, Any], field: str, where: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load(yaml.safe_dump({**MINIMAL, **fields}), directory=tmp_path)
    problems = {problem.field: problem.message for problem in refused.value.problems}
    assert problems[field] == f"is unknown here; it belongs {where}"
