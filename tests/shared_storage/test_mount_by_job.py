"""The shell text by which a job's container mounts shared storage, and what is said of one that could not."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.evidence import EXIT_NOT_MOUNTED, EXIT_OTHER_STORAGE
from nni_manager.domain.job import JobState
from nni_manager.shared_storage import mount_by_job
from nni_manager.shared_storage.mount_by_job import explained
from nni_manager.shared_storage.shared_mount import KEY_VARIABLE
from tests.shared_storage.test_shared_folder import Shared, spec

pytestmark = pytest.mark.unit
_FIELD = "sharedStorage.remoteMountPoint: "
_FAILED = Observation(state=JobState.FAILED, exit_code=EXIT_NOT_MOUNTED)


def ended(mount: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    command = ["/bin/sh", "-c", f'{mount}echo "mounted$" "${{{KEY_VARIABLE}-}}"']
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=30)


async def test_mounted_storage_is_used_as_it_is_and_the_key_goes(tmp_path: Path) -> None:
    own = await mount_by_job.prepared(Shared(tmp_path).folder, spec(), "or do without")
    done = ended(own.mount, **{KEY_VARIABLE: "c2VjcmV0"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "mounted$ \n", "")


@pytest.mark.parametrize("program", ["", '(sleep "$s"; kill $$) & exec "$@"'], ids=["ours", "as BusyBox's"])
async def test_hanging_mount_ends_with_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    if program:
        (tmp_path / "timeout").write_text(f"#!/bin/sh\ns=$1\nshift\n{program}\n")
        (tmp_path / "timeout").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mount_by_job, "_PATIENCE_S", 1)
    shared = Shared(tmp_path)
    own = await mount_by_job.prepared(shared.folder, spec(), "or it's done without")
    (mark,) = shared.point.rglob(".nni-storage.*")
    mark.unlink()
    os.mkfifo(mark)  # nothing writes to it
    done = ended(own.mount)
    assert (done.returncode, done.stdout) == (EXIT_NOT_MOUNTED, "")
    report = explained(replace(_FAILED, stderr_tail=done.stderr))
    assert report is not None
    words = f"{shared.point} gives no answer within 1 s; check the storage's server; or it's done without"
    assert report.message == f"{_FIELD}{words}" and report.stderr_tail == "", "it is told once"


def test_reason_that_did_not_arrive() -> None:
    """The service's log may miss the last lines."""
    report = explained(replace(_FAILED, stderr_tail="Traceback"))
    assert report is not None and report.message.startswith(f"{_FIELD}the container could not mount")
    assert report.stderr_tail == "Traceback"


def test_other_ends_are_not_the_storages() -> None:
    assert explained(replace(_FAILED, exit_code=EXIT_OTHER_STORAGE, stderr_tail="sharedStorage: gone")) is None
    assert explained(replace(_FAILED, state=JobState.PREEMPTED)) is None
