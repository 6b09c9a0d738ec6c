"""`trainingService`: one platform, several, and platforms of other packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nni_manager.config.experiment_file import from_canonical
from nni_manager.domain.errors import Problem
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit import registry
from nni_manager.platforms.local.config import LocalConfig

pytestmark = pytest.mark.unit

Load = Callable[..., ExperimentSpec]
Refusals = Callable[..., list[Problem]]

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "platform", "is required and not set; add one of: adl"),
    ({"platform": 5}, "platform", "must be text"),
    ({"platform": "locla"}, "platform", "did you mean local?"),
    ({"platform": "paiYrn"}, "platform", "did you mean paiYarn?"),
    ({"platform": "kubflow"}, "platform", "did you mean kubeflow?"),
    ({"platform": "hybrid"}, "platform", "'hybrid' is not a platform"),
    ({"platform": "moonbase"}, "platform", "cannot find platform 'moonbase'; Known: adl, aml"),
    ({"platform": "local", "useActiveGpu": "yes"}, "useActiveGpu", "must be true or false"),
    ({"platform": "local", "useActivGpu": True}, "useActivGpu", "did you mean useActiveGpu?"),
    ({"platform": "local", "trialGpuNumber": 1}, "useActiveGpu", "when trialGpuNumber is above 0"),
    ({"platform": "local", "trialGpuNumber": True}, "trialGpuNumber", "must be a whole number"),
    ({"platform": "local", "trialGpuNumber": -1}, "trialGpuNumber", "must be at least 0"),
    ({"platform": "local", "maxTrialNumberPerGpu": 2}, "maxTrialNumberPerGpu", "only when trialGpuNumber"),
    ({"platform": "local", "trialGpuMemory": "4GB"}, "trialGpuMemory", "only when trialGpuNumber is above 0"),
    ({"platform": "local", "trialGpuMemory": "much"}, "trialGpuMemory", "must be an amount of memory such as 8GB"),
    (
        {"platform": "local", "trialGpuNumber": 2, "useActiveGpu": False, "gpuIndices": [1]},
        "gpuIndices",
        "names 1 GPU, and a trial needs 2; name more, or lower trialGpuNumber",
    ),
    ({"platform": "local", "maxTrialNumberPerGpu": 0}, "maxTrialNumberPerGpu", "must be above 0"),
    ({"platform": "local", "maxTrialNumberPerGpu": "2"}, "maxTrialNumberPerGpu", "must be a whole number"),
    ({"platform": "local", "gpuIndices": []}, "gpuIndices", "must name at least one GPU"),
    ({"platform": "local", "gpu_indices": "1,1"}, "gpu_indices", "names GPU 1 twice"),
    ({"platform": "local", "reuseMode": 0}, "reuseMode", "must be true or false"),
    ({"platform": "local", "trialCommand": 0}, "trialCommand", "must be text"),
    ({"platform": "local", "trialCommand": ""}, "trialCommand", "must not be empty"),
    ({"platform": "local", "trialCommand": "true\0"}, "trialCommand", "holds a NUL character"),
    ({"platform": "local", "trialCodeDirectory": "no/hive"}, "trialCodeDirectory", "cannot find folder"),
    ({"platform": "local", "debug": "true"}, "debug", "must be true or false"),
]


def test_gpu_fields_of_trials_without_gpus_are_warned_of(load_with: Load) -> None:
    spec = load_with(trainingService={"platform": "local", "gpuIndices": [0], "useActiveGpu": True})
    found = {one.field: one.message for one in spec.warnings}
    for name in ("gpuIndices", "useActiveGpu"):
        assert found[f"trainingService.{name}"] == "changes nothing while trialGpuNumber is 0 or not set"


@pytest.mark.parametrize(("section", "field", "words"), BAD)
def test_bad_sections(refusals: Refusals, section: dict[str, Any], field: str, words: str) -> None:
    [problem] = refusals(trainingService=section)
    assert problem.field == f"trainingService.{field}"
    assert words in problem.message
    assert problem.line >= 11


def test_section_inherits_fields_of_the_top_level(load_with: Load, tmp_path: Path) -> None:
    (tmp_path / "hive").mkdir()
    section = {"platform": "local", "trial_code_directory": "hive", "nniManagerIp": "192.0.2.9", "gpuIndices": 2}
    section |= {"trialGpuNumber": 1, "useActiveGpu": False}
    [platform] = load_with(debug=True, nniManagerIp="192.0.2.8", trainingService=section).platforms
    assert platform.name == "local"
    assert platform.settings == {
        "platform": "local",
        "trialCommand": "python3 fit.py",
        "trialCodeDirectory": str((tmp_path / "hive").resolve()),
        "debug": True,
        "trialGpuNumber": 1,
        "useActiveGpu": False,
        "maxTrialNumberPerGpu": 1,
        "gpuIndices": [2],
        "reuseMode": False,
    }
    assert LocalConfig.model_validate(platform.settings).gpu_indices == [2]


def test_folder_in_an_image_is_not_inherited(load_with: Load) -> None:
    spec = load_with(trainingService={"platform": "adl"})
    assert "trialCodeDirectory" not in spec.platforms[0].settings
    assert from_canonical(spec.canonical) == spec
    [platform] = load_with(trainingService={"platform": "adl", "trialCodeDirectory": "/opt/code"}).platforms
    assert platform.settings["trialCodeDirectory"] == "/opt/code"


def test_memory_alone_limits_how_many_trials_share_a_gpu(load_with: Load) -> None:
    section = {"platform": "local", "useActiveGpu": False}
    spec = load_with(trialGpuNumber=1, trialGpuMemory="8GB", trainingService=section)
    assert spec.platforms[0].settings["trialGpuMemory"] == 8192
    assert "maxTrialNumberPerGpu" not in spec.platforms[0].settings
    assert from_canonical(spec.canonical) == spec
    both = load_with(trialGpuNumber=1, trainingService={**section, "trialGpuMemory": 512, "maxTrialNumberPerGpu": 2})
    assert both.platforms[0].settings["maxTrialNumberPerGpu"] == 2


def test_memory_that_no_platform_goes_by_is_refused(refusals: Refusals) -> None:
    [problem] = refusals(trialGpuMemory="8GB", trainingService={"platform": "scripted"})
    assert (problem.field, "no platform" in problem.message) == ("trialGpuMemory", True)


def test_section_overrides_fields_of_the_top_level(load_with: Load) -> None:
    section = {"platform": "scripted", "nniManagerIp": "192.0.2.9", "debug": True}
    spec = load_with(nniManagerIp="192.0.2.8", trainingService=section)
    assert (spec.manager_ip, spec.debug, spec.checks_version) == ("192.0.2.9", True, False)
    spec = load_with(nniManagerIp="192.0.2.8", trainingService={"platform": "scripted"})
    assert (spec.manager_ip, spec.debug, spec.checks_version) == ("192.0.2.8", False, True)


def test_several_platforms(load_with: Load) -> None:
    spec = load_with(trainingService=[{"platform": "local"}, {"platform": "local", "trialCommand": "./other"}])
    assert [platform.settings["trialCommand"] for platform in spec.platforms] == ["python3 fit.py", "./other"]
    assert all(platform.settings["reuseMode"] for platform in spec.platforms)
    assert isinstance(spec.canonical["trainingService"], list)
    assert from_canonical(spec.canonical) == spec


def test_a_list_of_very_many_platforms_is_refused(refusals: Refusals) -> None:
    """Names and faults of 40,000 took minutes in the daemon; the rest of the file is judged as ever."""
    (problem,) = refusals(trainingService=[{"platform": "local"}] * 101)
    assert problem.field == "trainingService"
    assert problem.message == "lists 101 training services; an experiment has 100 at most"


def test_list_of_one_platform_equals_the_platform(load_with: Load) -> None:
    assert load_with(trainingService=[{"platform": "local"}]) == load_with()


def test_problems_in_a_list_name_their_place(refusals: Refusals) -> None:
    problems = refusals(trainingService=[{"platform": "local", "honey": 1}, "local", {"platform": "locall"}])
    assert [problem.field for problem in problems] == [
        "trainingService[0].honey",
        "trainingService[1]",
        "trainingService[2].platform",
    ]
    assert [problem.line for problem in problems] == [13, 14, 15]


class Hive(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)
    host_name: str
    key_file: str | None = Field(default=None, json_schema_extra={"format": "file"})
    memory_size: int | None = Field(default=None, json_schema_extra={"format": "memory"})


class Apiary(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)
    platform: str
    token: str
    hives: list[Hive] = Field(min_length=1)
    mount_point: str | None = Field(default=None, json_schema_extra={"format": "path"})
    patience: str | int = Field(default="5m", json_schema_extra={"format": "duration"})
    trial_command: str


@pytest.fixture
def apiary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform of another package, with sections within its section."""
    found = registry.PlatformDescription(name="apiary", config=Apiary, adapter="bees:Apiary", summary="bees")
    monkeypatch.setattr(registry, "find", lambda _name: found)


def test_a_model_with_models_within(apiary: None, load_with: Load, tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    hives = [{"HOST_NAME": "h1", "keyFile": "key", "memorySize": "2gb"}, {"hostName": "h2"}]
    spec = load_with(
        trainingService={"platform": "old-bees", "token": "t", "hives": hives, "mountPoint": "m", "Patience": 60}
    )
    assert spec.platforms[0].name == "apiary"
    assert spec.platforms[0].settings == {
        "platform": "apiary",
        "token": "t",
        "hives": [
            {"hostName": "h1", "keyFile": str((tmp_path / "key").resolve()), "memorySize": 2048},
            {"hostName": "h2"},
        ],
        "mountPoint": str(tmp_path.resolve() / "m"),
        "patience": 60,
        "trialCommand": "python3 fit.py",
    }
    assert from_canonical(spec.canonical) == spec


def test_problems_within_name_the_users_words_and_no_secret(apiary: None, refusals: Refusals) -> None:
    hives = [{"host_name": 7, "memorySize": "8 potatoes"}, {"hostname": "h", "honey": 1}, {}, "h4"]
    problems = refusals(trainingService={"platform": "apiary", "token": 31337, "hives": hives, "patience": "soon"})
    assert {problem.field: problem.message.split(";")[0] for problem in problems} == {
        "trainingService.token": "must be text, not a whole number",
        "trainingService.hives[0].host_name": "must be text, not a whole number",
        "trainingService.hives[0].memorySize": "must be an amount of memory such as 8GB or 512mb, or a number of MB, "
        "not '8 potatoes'",
        "trainingService.hives[1].honey": "unknown field",
        "trainingService.hives[2].hostName": "is required and not set",
        "trainingService.hives[3]": "must be a mapping of names to values, not text",
        "trainingService.patience": "must be a duration such as 30s, 10m, 1.5h or 2d, "
        "or a number of seconds, not 'soon'",
    }
    assert "31337" not in str(problems)


def test_every_local_field_is_described() -> None:
    assert all(field.description for field in LocalConfig.model_fields.values())
