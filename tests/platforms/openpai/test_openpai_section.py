"""A section of OpenPAI that cannot work: one sentence with the field, before anything is made or asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import ConfigInvalid, InvalidInput
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.openpai.platform import OpenpaiPlatform

pytestmark = pytest.mark.unit

ROLE = {"dockerImage": "image", "commands": ["true"], "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0}}
JOB = {"protocolVersion": 2, "name": "mine", "type": "job", "taskRoles": {"main": ROLE}}


def section(folder: Path, **changes: Any) -> dict[str, Any]:
    """`None` leaves a field out."""
    fields = {
        "platform": "openpai",
        "host": "pai.example.com",
        "username": "alice",
        "token": "not-a-real-token",
        "trialCpuNumber": 1,
        "trialMemorySize": "1GB",
        "storageConfigName": "nfs",
        "localStorageMountPoint": str(folder),
        "containerStorageMountPoint": "/mnt/nfs",
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


def judged(folder: Path, **changes: Any) -> None:
    """As `nnictl config check` does."""
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "true",
        "trialConcurrency": 1,
        "trialGpuNumber": 0,
        "tuner": {"name": "Random"},
        "trainingService": section(folder, **changes),
    }
    spec = load(yaml.safe_dump(config), directory=folder)
    OpenpaiPlatform.check(spec, OpenpaiConfig.model_validate(spec.platforms[0].settings))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"trialCpuNumber": "two"}, "trialCpuNumber", ""),
        ({"trialMemorySize": "lots"}, "trialMemorySize", ""),
        ({"trialCpuNumber": None}, "trialCpuNumber", "or a job configuration that has it"),
        ({"storageConfigName": None}, "storageConfigName", "or a job configuration that has it"),
        ({"openpaiConfig": JOB, "openpaiConfigFile": "job.yml"}, "openpaiConfigFile", "keep one of the two"),
        ({"openpaiConfig": {"name": "no roles"}}, "openpaiConfig", "must have taskRoles"),
        ({"token": None}, "token", "is required"),
        ({"password": "p"}, "token", "keep one"),
        ({"localStorageMountPoint": "/no/such/folder"}, "localStorageMountPoint", ""),
        ({"openpaiConfig": JOB, "reporter": "worker"}, "reporter", "it has main"),
        ({"reporter": "worker"}, "reporter", "there is none"),
        (
            {"openpaiConfig": JOB, "containerStorageMountPoint": None, "storageConfigName": None},
            "containerStorageMountPoint",
            "mounts no storage",
        ),
    ],
)
def test_faulty_section_is_refused_by_field(tmp_path: Path, changes: dict[str, Any], field: str, words: str) -> None:
    (tmp_path / "job.yml").write_text(yaml.safe_dump(JOB))
    with pytest.raises((ConfigInvalid, InvalidInput)) as raised:
        judged(tmp_path, **changes)
    assert field in str(raised.value) and words in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"openpaiConfig": JOB, "trialCpuNumber": None, "trialMemorySize": None},
        {"openpaiConfigFile": "job.yml", "reporter": "main", "trialCpuNumber": None},
        {
            "openpaiConfig": {**JOB, "extras": {"storages": [{"name": "nfs"}]}},
            "storageConfigName": None,
            "containerStorageMountPoint": None,
        },
    ],
)
def test_valid_sections_are_accepted(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "job.yml").write_text(yaml.safe_dump(JOB))
    judged(tmp_path, **changes)
