"""An experiment's folder on shared storage, where other users of the machine may write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from nni_manager.domain.job import JobReport, JobSpec, JobState
from nni_manager.platform_kit.archive import pack
from nni_manager.platform_kit.keeper.client import Keeper
from nni_manager.platform_kit.mounted_storage import EXIT_OTHER_STORAGE
from nni_manager.platform_kit.shared_folder import SharedFolder
from nni_manager.platform_kit.testing.recorder import Recorder
from tests.platforms.keeper_world import job_spec

pytestmark = pytest.mark.unit


class Shared:
    """An experiment on a storage that is a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.point = folder / "share"
        self.point.mkdir()
        self.recorder = Recorder("exp1")
        self.recorder.folder = folder / "experiment"
        self.recorder.code_archive = packed(folder / "code", "hello")
        self.folder = self.made()

    def made(self) -> SharedFolder:
        """As a manager makes it that was started now."""
        section = {
            "storageType": "NFS", "nfsServer": "files.example.test", "exportedDirectory": "/data",
            "localMountPoint": str(self.point), "remoteMountPoint": str(self.point), "localMounted": "usermount",
        }  # fmt: skip
        host = self.recorder.host(cast(Keeper, None))
        return SharedFolder(replace(host, shared_storage=lambda: section))

    async def run(self) -> subprocess.CompletedProcess[str]:
        """Runs a trial."""
        await self.folder.place(spec())
        command = self.folder.command(spec(), self.folder.there(str(self.point)), sys.executable)
        return await asyncio.to_thread(
            lambda: subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        )


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def packed(folder: Path, words: str) -> Path:
    folder.mkdir()
    (folder / "greeting.txt").write_text(f"{words}\n")
    return pack(folder, folder.with_name(f"{folder.name}-packed")).path


def spec() -> JobSpec:
    return job_spec(
        name="nni_exp_exp1_trial_abcde", experiment_id="exp1", trial_id="abcde", attempt=1,
        command="cat greeting.txt", caller_environment={}, code_directory="/nowhere",
        attempt_directory="/somewhere/trials/abcde",
    )  # fmt: skip


async def test_swapped_code_is_not_run_and_put_right_for_the_next_trial(shared: Shared, tmp_path: Path) -> None:
    await shared.folder.ready()
    [archive] = shared.point.rglob("code-*.tar.gz")
    os.replace(packed(tmp_path / "evil", "evil"), archive)
    ended = await shared.run()
    assert (ended.returncode, ended.stdout) == (EXIT_OTHER_STORAGE, ""), ended.stderr
    report = JobReport(state=JobState.FAILED, exit_code=ended.returncode, stderr_tail=ended.stderr)
    explained = shared.folder.explained(report)
    assert explained.state is JobState.PREEMPTED and "is not as the manager put it there" in explained.message
    ended = await shared.run()
    assert ended.stdout == "hello\n", ended.stderr
