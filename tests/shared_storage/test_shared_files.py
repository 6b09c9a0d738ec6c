"""Services of one experiment in one folder on storage: each has its mark, and the last that leaves takes the rest."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from nni_manager.code_archive import pack
from nni_manager.domain.job import JobSpec
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit.testing.recorder import Recorder
from nni_manager.shared_storage import shared_files
from nni_manager.shared_storage.mounted_storage import AttemptFolder, MountedStorage, variables_of
from nni_manager.shared_storage.shared_files import ServiceMark
from tests import bare_python
from tests.platforms.keeper_world import job_spec

pytestmark = pytest.mark.unit


class Team:
    """Two services of one experiment that mount the same storage, each where the containers do."""

    def __init__(self, folder: Path) -> None:
        self.point = folder / "mount"
        self.point.mkdir()
        (folder / "code").mkdir()
        (folder / "code" / "greeting.txt").write_text("hello\n")
        (folder / "packed").mkdir()
        self.code = pack(folder / "code", folder / "packed").path
        host = Recorder("exp1").host(cast(Keeper, None))
        self.first, self.second = (
            MountedStorage.of(replace(host, service=name), self.point, str(self.point), None)
            for name in ("openpai", "openpai-2")
        )

    @property
    def folder(self) -> Path:
        return self.first.here

    async def put(self, storage: MountedStorage, trial_id: str) -> AttemptFolder:
        spec = job(trial_id)
        return await storage.put(spec, variables_of(spec, "test"), self._packed)

    async def _packed(self) -> Path:
        return self.code

    async def run(self, storage: MountedStorage, folder: AttemptFolder) -> str:
        """The end of a container: what it printed, or its exit status."""
        environment = {"PATH": f"{Path(bare_python.own()).parent}:/usr/bin:/bin", "HOME": "/nowhere"}
        command = ["/bin/sh", "-c", storage.start_command(folder)]
        done = await asyncio.to_thread(
            lambda: subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
        )
        return done.stdout if done.returncode == 0 else f"{done.returncode} {done.stderr}"


def job(trial_id: str) -> JobSpec:
    return job_spec(
        name=f"nni_exp_exp1_trial_{trial_id}",
        experiment_id="exp1",
        trial_id=trial_id,
        attempt=1,
        command="cat greeting.txt",
        caller_environment={},
        code_directory="/nowhere",
        attempt_directory=f"/somewhere/trials/{trial_id}",
    )


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


async def test_two_services_put_their_first_trials_at_once(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one puts its trial while the first is about to write its mark, at another mount point of the same
    storage, which the system takes for another device."""
    monkeypatch.setattr(shared_files, "_alone_in", lambda folder: nullcontext())
    real, second = secrets.token_hex, list[AttemptFolder]()

    def overtaken(length: int) -> str:
        if length == 8 and not second:
            monkeypatch.undo()
            second.append(asyncio.run(team.put(team.second, "bbbbb")))
        return real(length)

    monkeypatch.setattr(secrets, "token_hex", overtaken)
    first = await team.put(team.first, "aaaaa")
    assert await team.run(team.first, first) == "hello\n"
    assert await team.run(team.second, second[0]) == "hello\n"


async def test_leaving_service_keeps_files_of_others(team: Team) -> None:
    await team.put(team.first, "aaaaa")
    queued = await team.put(team.second, "bbbbb")
    await team.first.remove_shared()
    assert await team.run(team.second, queued) == "hello\n"
    await team.second.remove_shared()
    assert [path.name for path in team.folder.iterdir() if path.is_file()] == []


async def test_a_service_that_has_left_puts_all_of_it_again(team: Team) -> None:
    for _ in range(2):
        folder = await team.put(team.first, "aaaaa")
        await team.first.remove_shared()
    folder = await team.put(team.first, "aaaaa")
    assert await team.run(team.first, folder) == "hello\n"


@pytest.mark.parametrize("pattern", [".nni-storage.*", "runner-*", "code-*"])
async def test_manually_removed_files_are_restored(team: Team, pattern: str) -> None:
    await team.put(team.first, "aaaaa")
    for path in team.folder.glob(pattern):
        path.unlink()
    assert await team.run(team.first, await team.put(team.first, "bbbbb")) == "hello\n"


def test_a_service_begins_while_the_last_one_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that begins waits until the one that leaves has removed what it found without another mark."""
    leaving, begins, asked = ServiceMark(tmp_path, "one"), ServiceMark(tmp_path, "two"), threading.Event()
    with leaving.put():
        shared_files.write_once(tmp_path / "code-1.tar.gz", lambda draft: draft.write_text("code"))
    alone_in, glob = shared_files._alone_in, Path.glob
    beginning = threading.Thread(target=lambda: _put(begins, tmp_path))

    @contextmanager
    def noted(folder: Path) -> Iterator[None]:
        if threading.current_thread() is beginning:
            asked.set()
        with alone_in(folder):
            yield

    def looked(folder: Path, pattern: str) -> list[Path]:
        found = list(glob(folder, pattern))
        if not beginning.ident:
            beginning.start()
            assert asked.wait(20)
        return found

    monkeypatch.setattr(shared_files, "_alone_in", noted)
    monkeypatch.setattr(Path, "glob", looked)
    leaving.remove()
    beginning.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".nni-storage.two", "code-1.tar.gz"]


def _put(mark: ServiceMark, folder: Path) -> None:
    with mark.put():
        shared_files.write_once(folder / "code-1.tar.gz", lambda draft: draft.write_text("code"))
