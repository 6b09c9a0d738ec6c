"""A section of OpenPAI that cannot work: one sentence with the field, before anything is made or asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nni_manager.config import admission
from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import ConfigInvalid, InvalidInput

pytestmark = pytest.mark.unit

ROLE = {"dockerImage": "image", "commands": ["true"], "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0}}
_MOUNTED = {"remoteMountPoint": "/mnt/nni", "localMounted": "usermount"}
NFS = {**_MOUNTED, "storageType": "NFS", "nfsServer": "files", "exportedDirectory": "/data"}
BLOB = {
    **_MOUNTED,
    "storageType": "AzureBlob",
    "storageAccountName": "shop",
    "storageAccountKey": "a2V5",
    "containerName": "models",
}
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


def judged(folder: Path, storage: dict[str, Any] | None = None, **changes: Any) -> None:
    """As `nnictl config check` does. `storage`: the section `sharedStorage`, with its folder next to the code."""
    config = {
        **({} if storage is None else {"sharedStorage": {**storage, "localMountPoint": "/srv/nni"}}),
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": "true",
        "trialConcurrency": 1,
        "trialGpuNumber": 0,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": section(folder, **changes),
    }
    spec = load(yaml.safe_dump(config), directory=folder)
    admission.check(spec)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"trialCpuNumber": "two"}, "trialCpuNumber", ""),
        ({"trialMemorySize": "lots"}, "trialMemorySize", ""),
        ({"trialCpuNumber": None}, "trialCpuNumber", "or add a job configuration that contains it"),
        ({"storageConfigName": None}, "storageConfigName", "or add a job configuration that contains it"),
        ({"openpaiConfig": JOB, "openpaiConfigFile": "job.yml"}, "openpaiConfigFile", "remove one of the two"),
        ({"openpaiConfig": {"name": "no roles"}}, "openpaiConfig", "must have taskRoles"),
        ({"token": None}, "token", "is required"),
        ({"password": "p"}, "token", "remove one"),
        ({"localStorageMountPoint": "/no/such/folder"}, "localStorageMountPoint", ""),
        ({"openpaiConfig": JOB, "reporter": "worker"}, "reporter", "it has main"),
        ({"reporter": "worker"}, "reporter", "requires a job configuration"),
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


@pytest.mark.parametrize("mounted", ["usermount", "nnimount"])
@pytest.mark.parametrize("storage", [NFS, BLOB], ids=["nfs", "blob"])
def test_shared_storage_is_accepted(tmp_path: Path, storage: dict[str, Any], mounted: str) -> None:
    judged(tmp_path, {**storage, "localMounted": mounted})
    judged(tmp_path, {**storage, "localMounted": mounted}, openpaiConfig=JOB)


@pytest.mark.parametrize(
    ("storage", "changes", "words"),
    [
        ({**NFS, "localMounted": "nomount"}, {}, "localMounted.*cannot be nomount"),
        ({**NFS, "remoteMountPoint": "nni"}, {}, r"^sharedStorage\.remoteMountPoint: jobs of openpai need a full path"),
        (NFS, {"openpaiConfig": {**JOB, "taskRoles": {"main": ROLE, "other": ROLE}}}, "^sharedStorage: .* has 2 tasks"),
        (
            NFS,
            {"openpaiConfig": {**JOB, "taskRoles": {"main": {**ROLE, "instances": 3}}}},
            "^sharedStorage: .* 3 tasks",
        ),
    ],
)
def test_shared_storage_that_jobs_cannot_use_is_refused(
    tmp_path: Path, storage: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises((ConfigInvalid, InvalidInput)) as raised:
        judged(tmp_path, storage, **changes)
    assert re.search(words, str(raised.value))
