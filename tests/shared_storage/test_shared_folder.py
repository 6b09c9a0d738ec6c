"""An experiment's folder on shared storage, where other users of the machine may write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from nni_manager.code_archive import pack
from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.evidence import EXIT_OTHER_STORAGE
from nni_manager.domain.job import JobSpec, JobState
from nni_manager.machines.keeper.client import Keeper
from nni_manager.platform_kit.testing.recorder import Recorder
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import ask_here
from tests.platforms.keeper_world import job_spec

pytestmark = pytest.mark.unit

_ANOTHER = 65534


class Shared:
    """An experiment on a storage that is a folder of this machine."""

    def __init__(
        self,
        folder: Path,
        point: Path | None = None,
        *,
        mode: str | None = None,
        in_containers: bool = False,
        key: str = "",
    ) -> None:
        self.key = key
        self.mode = {} if mode is None else {"mode": mode}
        self.in_containers = in_containers
        self.point = point or folder / "share"
        self.point.mkdir()
        self.recorder = Recorder("exp1")
        self.recorder.folder = folder / "experiment"
        self.recorder.code_archive = packed(folder / "code", "hello")
        self.folder = self.made()

    def made(self) -> SharedFolder:
        """As a manager makes it that was started now."""
        section = {
            "storageType": "NFS",
            "nfsServer": "files.example.test",
            "exportedDirectory": "/data",
            "localMountPoint": str(self.point),
            "remoteMountPoint": str(self.point),
            "localMounted": "usermount",
            **self.mode,
        }
        host = self.recorder.host(cast(Keeper, None))
        host = replace(host, shared_storage=lambda: section, storage_key=self.key)
        return SharedFolder(host, in_containers=self.in_containers)

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


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Shared]:
    """A storage that all users of this machine reach and may write to."""
    with tempfile.TemporaryDirectory() as folder:
        shared = Shared(tmp_path, Path(folder) / "share")
        Path(folder).chmod(0o755)
        shared.point.chmod(0o1777)
        yield shared


def as_another_user(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command],
        user=_ANOTHER,
        group=_ANOTHER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )


def packed(folder: Path, words: str) -> Path:
    folder.mkdir()
    (folder / "greeting.txt").write_text(f"{words}\n")
    return pack(folder, folder.with_name(f"{folder.name}-packed")).path


def spec() -> JobSpec:
    return job_spec(
        name="nni_exp_exp1_trial_abcde",
        experiment_id="exp1",
        trial_id="abcde",
        attempt=1,
        command="cat greeting.txt",
        caller_environment={},
        code_directory="/nowhere",
        attempt_directory="/somewhere/trials/abcde",
    )


async def test_swapped_code_is_refused_and_restored(shared: Shared, tmp_path: Path) -> None:
    await shared.folder.ready()
    [archive] = shared.point.rglob("code-*.tar.gz")
    os.replace(packed(tmp_path / "evil", "evil"), archive)
    ended = await shared.run()
    assert (ended.returncode, ended.stdout) == (EXIT_OTHER_STORAGE, ""), ended.stderr
    report = Observation(state=JobState.FAILED, exit_code=ended.returncode, stderr_tail=ended.stderr)
    explained = shared.folder.explained(report)
    assert explained.state is JobState.PREEMPTED and "was changed, or cannot be unpacked" in explained.message
    ended = await shared.run()
    assert ended.stdout == "hello\n", ended.stderr


@pytest.mark.parametrize("name", ["nni", "nni/exp1", "nni/exp1/trials", "nni/exp1/trials/abcde"])
async def test_a_planted_link_is_not_followed(shared: Shared, tmp_path: Path, name: str) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (shared.point / name).parent.mkdir(parents=True, exist_ok=True)
    (shared.point / name).symlink_to(private)
    with pytest.raises(PlatformUnavailable, match=f"{name}: a link or a file at the path of a folder"):
        await shared.folder.place(spec())
    assert private.stat().st_mode & 0o777 == 0o700 and not list(private.iterdir())


async def test_stdout_copy_does_not_follow_a_link(shared: Shared, tmp_path: Path) -> None:
    await shared.folder.place(spec())
    (tmp_path / "own").write_text("mine")
    (shared.folder.here / "trials" / "abcde" / "stdout").symlink_to(tmp_path / "own")

    async def read(name: str, offset: int, _limit: int) -> bytes:
        return name.encode()[offset:]

    await shared.folder.collect(spec().name, read)
    assert (tmp_path / "own").read_text() == "mine"
    assert (shared.folder.here / "trials" / "abcde" / "stdout").read_text() == "stdout"


async def test_folders_are_made_private_that_an_earlier_version_opened(shared: Shared) -> None:
    for name in ("nni", "nni/exp1", "nni/exp1/trials"):
        (shared.point / name).mkdir()
        (shared.point / name).chmod(0o777)
    await shared.folder.place(spec())
    modes = {path.name: path.stat().st_mode & 0o7777 for path in shared.point.rglob("*") if path.is_dir()}
    trials = {"abcde": 0o1777, "abcde-checkpoint": 0o1777}
    assert modes == {"nni": 0o1777, "exp1": 0o711, "trials": 0o711, **trials}, "its trials may be at work"


@pytest.mark.parametrize(
    ("asked", "in_containers", "mode"),
    [
        (None, False, 0o700),
        ("0700", False, 0o700),
        ("0710", False, 0o710),
        ("0711", False, 0o711),
        ("0700", True, 0o711),
        ("0750", True, 0o751),
    ],
)
async def test_experiment_folder_is_private_by_default(
    tmp_path: Path, asked: str | None, in_containers: bool, mode: int
) -> None:
    shared = Shared(tmp_path, mode=asked, in_containers=in_containers)
    before = os.umask(0)
    try:
        await shared.folder.place(spec())
    finally:
        os.umask(before)
    for name in ("nni/exp1", "nni/exp1/trials"):
        assert (shared.point / name).stat().st_mode & 0o7777 == mode


@pytest.mark.machines
async def test_another_user_s_link_opens_no_private_folder(team: Shared, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert as_another_user(f"ln -s {private} {team.point}/nni").returncode == 0
    with pytest.raises(PlatformUnavailable, match="nni: a link or a file"):
        await team.folder.place(spec())
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.machines
async def test_other_user_can_neither_list_nor_swap_files(team: Shared) -> None:
    await team.folder.place(spec())
    [archive] = team.point.rglob("code-*.tar.gz")
    for command in (
        f"ls {archive.parent}",
        f"mv {archive} {archive}.old",
        f"echo evil > {archive}",
        f"mv {archive.parent} {team.point}/nni/other",
        f"ls {archive.parent}/trials",
        f"mv {archive.parent}/trials/abcde/parameter.cfg {team.point}/taken",
    ):
        assert as_another_user(command).returncode != 0, command
    assert (await team.run()).stdout == "hello\n"


@pytest.mark.machines
@pytest.mark.parametrize(("mode", "may"), [("0700", False), ("0711", True)])
async def test_other_user_writes_to_trial_folder_only_with_mode(tmp_path: Path, mode: str, *, may: bool) -> None:
    """Also a user that knows all names."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        team = Shared(tmp_path, Path(folder) / "share", mode=mode)
        await team.folder.place(spec())
        trial = team.point / "nni" / "exp1" / "trials" / "abcde"
        written = as_another_user(f"echo evil > {trial}/evil").returncode == 0
        assert (written, (trial / "evil").exists()) == (may, may)


@pytest.mark.machines
@pytest.mark.parametrize("planted", ["code", "nnioutput", "nnioutput/.nni"])
async def test_folder_that_another_user_prepared_is_refused(tmp_path: Path, planted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        team = Shared(tmp_path, Path(folder) / "share", mode="0711")
        await team.folder.place(spec())
        trial = team.point / "nni" / "exp1" / "trials" / "abcde"
        assert as_another_user(f"umask 0; mkdir -p {trial}/{planted}").returncode == 0
        ended = await team.run()
        report = Observation(state=JobState.FAILED, exit_code=ended.returncode, stderr_tail=ended.stderr)
        explained = team.folder.explained(report)
        assert (ended.stdout, explained.state) == ("", JobState.PREEMPTED)
        assert f"{trial}/{planted.partition('/')[0]} belongs to another user" in explained.message


@pytest.mark.machines
@pytest.mark.parametrize(("mode", "is_refused"), [("1777", False), ("777", True)])
async def test_another_user_s_root_is_used_when_it_is_sticky(team: Shared, mode: str, *, is_refused: bool) -> None:
    assert as_another_user(f"mkdir {team.point}/nni; chmod {mode} {team.point}/nni").returncode == 0
    if is_refused:
        with pytest.raises(PlatformUnavailable, match="another user's folder, in which every user can replace"):
            await team.folder.place(spec())
    else:
        assert (await team.run()).stdout == "hello\n"


@pytest.mark.machines
@pytest.mark.parametrize(("mode", "may"), [("0700", False), ("0711", True)])
async def test_folder_name_cannot_be_guessed_or_taken(tmp_path: Path, mode: str, *, may: bool) -> None:
    """Ids of experiments may be chosen, and those of trials are shown to many."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        team = Shared(tmp_path, Path(folder) / "share", mode=mode, key="0123456789abcdef01234567")
        team.point.chmod(0o1777)
        planted = f"umask 0; mkdir -p {team.point}/nni/exp1; chmod 1777 {team.point}/nni"
        assert as_another_user(planted).returncode == 0
        assert (await team.run()).stdout == "hello\n"
        root = team.point / "nni"
        assert as_another_user(f"ls {root}").stdout.split() == ["exp1", "exp1-01234567"]
        assert as_another_user(f"ls {root}/exp1-01234567").returncode != 0
        for guess in (f"{root}/exp1-01234567/trials/abcde", f"{root}/exp1-01234567/*/trials/abcde"):
            assert as_another_user(f"echo evil > {guess}/evil").returncode != 0
        trial = root / "exp1-01234567" / "89abcdef01234567" / "trials" / "abcde"
        assert (as_another_user(f"echo evil > {trial}/evil").returncode == 0) == may


@pytest.mark.machines
async def test_another_user_s_folder_in_the_place_of_ours_is_refused(team: Shared) -> None:
    assert as_another_user(f"umask 0; mkdir -p {team.point}/nni/exp1; chmod 1777 {team.point}/nni").returncode == 0
    with pytest.raises(PlatformUnavailable, match="nni/exp1: another user's folder at the path of ours"):
        await team.folder.place(spec())


async def test_local_program_does_not_get_managers_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it mounts with runs on, with its environment."""
    monkeypatch.setenv("NNI_MANAGER_TOKEN", "a token of the bees")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.test")
    text = (
        "import json, os\n"
        "found = sorted({'NNI_MANAGER_TOKEN', 'HTTPS_PROXY', 'PATH'} & set(os.environ))\n"
        "print(json.dumps({'state': 'other', 'point': ' '.join(found)}))"
    )
    assert (await ask_here(text)).point == "HTTPS_PROXY PATH"
