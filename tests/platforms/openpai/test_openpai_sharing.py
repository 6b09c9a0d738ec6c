"""Containers that mount shared storage by themselves, and what is said of those that cannot."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.evidence import EXIT_NOT_MOUNTED
from nni_manager.domain.job import JobState
from nni_manager.platform_kit.contract import Severity
from nni_manager.platform_kit.payload import copy_from
from nni_manager.platform_kit.testing import unreachable_keeper
from nni_manager.platform_kit.testing.observing import seen, taken
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.shared_storage import shared_mount
from tests.platforms.openpai.openpai_world import SECRET, STORAGE, USER, Impatient, OpenpaiWorld, users_job

pytestmark = pytest.mark.contract

KEY = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="
POINT = "/mnt/nni"
_NFS = {"storageType": "NFS", "nfsServer": "files.example.test", "exportedDirectory": "/data"}
_BLOB = {
    "storageType": "AzureBlob",
    "storageAccountName": "shop",
    "storageAccountKey": KEY,
    "containerName": "models",
}
_ENDS = tuple(state for state in JobState if state.is_final)


def built(world: OpenpaiWorld, storage: dict[str, Any], **changes: Any) -> Impatient:
    """Its network has an export and a container of Azure Blob, which are one folder of this machine."""
    export = world.here.with_name("export")
    (export / "other").mkdir(parents=True, exist_ok=True)
    world.fake.control(
        "users",
        users={USER: {"tokens": [SECRET]}},
        storages={STORAGE: str(world.here)},
        limits={"list": [100_000, 60], "all": [100_000, 60]},
        exports={"files.example.test:/data": str(export)},
        blobs={"shop/models": {"folder": str(export), "key": KEY}},
    )
    mounted = {"localMountPoint": str(export), "remoteMountPoint": POINT, "localMounted": "usermount"}
    section = {**mounted, "mode": "0700", **storage}
    host = dataclasses.replace(world.recorder.host(unreachable_keeper()), shared_storage=lambda: section)
    return Impatient(OpenpaiConfig.model_validate(world.settings(**changes)), host)


@pytest.fixture
def impatient_mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They wait a second for a server."""
    text = shared_mount._PROGRAM.read_text()
    assert "_MOUNT_S, _PATIENCE_S, _LOOK_S = 20.0, 5.0, 0.2" in text
    shorter = tmp_path / "shared_storage.py"
    shorter.write_text(text.replace("= 20.0, 5.0, 0.2", "= 1.0, 0.5, 0.2"))
    monkeypatch.setattr(shared_mount, "_PROGRAM", shorter)


@pytest.mark.usefixtures("impatient_mounts")
@pytest.mark.parametrize(
    ("behaviour", "storage", "happened", "what_to_do"),
    [
        ({"image_packages": []}, _NFS, "mount.nfs is not installed", "use an image that has nfs-common"),
        ({"image_packages": []}, _BLOB, "blobfuse2 is not installed", "use an image that has blobfuse2"),
        ({"may_mount": False}, _NFS, "mount.nfs: Operation not permitted", "CAP_SYS_ADMIN"),
        ({"may_mount": False}, _BLOB, "fuse: mount failed: Operation not permitted", "CAP_SYS_ADMIN"),
        ({"mount_fault": "denied"}, _NFS, "access denied by server", "its address at the server"),
        ({}, {**_NFS, "nfsServer": "elsewhere"}, "Failed to resolve server elsewhere", "check server"),
        ({}, {**_BLOB, "storageAccountKey": "b3RoZXI="}, "failed to authenticate", "and credentials"),
        ({"mount_fault": "hang"}, _NFS, "no answer within 1 s", "check server"),
        ({}, {**_NFS, "remoteMountPoint": "/etc"}, "/etc is a folder with other files in it", "use another folder"),
        ({}, {**_NFS, "exportedDirectory": "/data/other"}, "not the storage that the manager has at", "another folder"),
    ],
)
async def test_job_that_cannot_mount_the_storage_says_why(
    world: OpenpaiWorld, behaviour: dict[str, Any], storage: dict[str, Any], happened: str, what_to_do: str
) -> None:
    world.fake.control("behaviour", **{"mount_fault": "", **behaviour})
    async with built(world, storage) as platform:
        handle = await taken(world, platform, world.command("aaaaa", "touch $NNI_SYS_DIR/ran"))
        await world.start_job(handle.job_name)
        report = await seen(world, platform, handle, *_ENDS)
    assert (report.state, report.exit_code, report.cause) == (JobState.FAILED, EXIT_NOT_MOUNTED, None)
    assert report.message.startswith("sharedStorage.remoteMountPoint: ") and happened in report.message, report.message
    assert what_to_do in report.message and "(storageConfigName)" in report.message, report.message
    assert report.stderr_tail == "", "it is told once"
    assert KEY not in str(report) and not list(world.here.rglob("ran"))


async def test_key_is_a_secret_of_the_job_and_no_variable_of_the_trial(world: OpenpaiWorld) -> None:
    async with built(world, _BLOB) as platform:
        spec = world.command("aaaaa", f"env > $NNI_OUTPUT_DIR/seen; ls -d {POINT}/other")
        handle = await taken(world, platform, spec)
        await world.start_job(handle.job_name)
        report = await seen(world, platform, handle, *_ENDS)
        assert report.state is JobState.SUCCEEDED, report
        shown = await platform._config(handle.job_name)
        await platform.forget([handle])
    assert shown["secrets"] == "******" and KEY not in str(shown)
    (job,) = world.submitted(spec.name)
    assert job["config"]["secrets"]["nniStorageKey"] == KEY
    export = world.here.with_name("export")
    (seen_variables,) = export.rglob("seen")
    assert "NNI_OUTPUT_DIR=/mnt/nni/nni/" in seen_variables.read_text()
    assert seen_variables.parents[1].joinpath("stdout").read_text() == f"{POINT}/other\n"
    files = [path for folder in (world.here, export) for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 8 and not [path for path in files if KEY.encode() in path.read_bytes()]


async def test_users_job_continues_checkpoint_on_storage(world: OpenpaiWorld) -> None:
    job = users_job('cat "$NNI_CHECKPOINT_DIR/state"')
    async with built(world, _NFS, openpaiConfig=job) as platform:
        handle = await taken(world, platform, world.command("aaaaa", "none", prelude=copy_from("bbbbb")))
        (beside,) = world.here.with_name("export").rglob("aaaaa-checkpoint")
        (beside.with_name("bbbbb-checkpoint")).mkdir()
        (beside.with_name("bbbbb-checkpoint") / "state").write_text("of bbbbb\n")
        await world.start_job(handle.job_name)
        report = await seen(world, platform, handle, *_ENDS)
        assert report.state is JobState.SUCCEEDED, report
        assert await platform.read_file(handle, "stdout", 0, 100) == b"of bbbbb\n"


async def test_storage_that_is_not_mounted_here_takes_no_job(world: OpenpaiWorld) -> None:
    async with built(world, {**_NFS, "localMountPoint": "/no/such/folder"}) as platform:
        findings = await platform.preflight()
        assert findings[0].severity is Severity.WRONG and findings[0].subject == "sharedStorage.localMountPoint"
        with pytest.raises(PlatformUnavailable, match=r"sharedStorage\.localMountPoint: the folder ") as away:
            await platform.submit(world.command("aaaaa", "true"))
    assert away.value.refused and world.fake.control("jobs") == []
