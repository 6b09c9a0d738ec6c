"""A start that fails half-way: nothing is left, and the name is free."""

import errno
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from trial_runner import processes, protocol
from trial_runner.keeper.jobs import beginning
from trial_runner.keeper.jobs.beginning import Spawn
from trial_runner.keeper.jobs.files import Log, StateFiles
from trial_runner.keeper.serving.requests import Refusal, SpawnRequest, spawn_request

pytestmark = pytest.mark.acceptance


@pytest.fixture
def request_(tmp_path: Path) -> SpawnRequest:
    message = {
        "name": "job",
        "command": "exec sleep 1000",
        "environment": {"SECRET": "hunter2"},
        "directory": str(tmp_path),
        "attempt_directory": str(tmp_path / "attempts" / "job"),
        "files": {"parameter.cfg": "{}", "deep/er": "x"},
    }
    return spawn_request(message)


@pytest.fixture
def spawner(tmp_path: Path) -> Spawn:
    log = Log(str(tmp_path / "keeper.log"))
    return Spawn(StateFiles(str(tmp_path / "jobs")), "boot", 0o022, log.write)


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_failed_fork_is_unavailable(
    spawner: Spawn, request_: SpawnRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(beginning, "launch", _failing(code))
    _assert_unavailable(spawner, request_, tmp_path)


def test_a_process_that_cannot_be_watched_is_taken_back(
    spawner: Spawn, request_: SpawnRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "open_pidfd", _failing(errno.ENFILE))
    before = processes.children(os.getpid())
    _assert_unavailable(spawner, request_, tmp_path)
    assert processes.children(os.getpid()) == before


def test_the_keeper_s_own_limits_are_as_before(spawner: Spawn, request_: SpawnRequest) -> None:
    limits = [resource.getrlimit(limit) for limit in (15, resource.RLIMIT_MSGQUEUE)]
    umask = os.umask(0o077)
    try:
        job = spawner.start(request_)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(umask)
    assert [resource.getrlimit(limit) for limit in (15, resource.RLIMIT_MSGQUEUE)] == limits
    assert job.main is not None
    os.kill(job.main.pid, 9)
    os.waitpid(job.main.pid, 0)
    os.close(job.pidfd)


def test_no_secret_is_in_a_request_s_repr(request_: SpawnRequest) -> None:
    assert repr(request_) == "SpawnRequest(name='job')"


def _assert_unavailable(spawner: Spawn, request: SpawnRequest, folder: Path) -> None:
    with pytest.raises(Refusal, match="Try again") as caught:
        spawner.start(request)
    assert caught.value.kind == protocol.UNAVAILABLE
    assert list((folder / "jobs").glob("*.jsonl")) == []
    assert not (folder / "attempts").exists()


def _failing(code: int) -> Any:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail
