"""Storage that two sides mount: what is put there once, and what a container does with it or says when it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nni_manager.code_archive import pack
from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import InvalidInput, PlatformUnavailable, SubmitRejected
from nni_manager.domain.evidence import EXIT_OTHER_STORAGE
from nni_manager.domain.job import JobSpec, JobState
from nni_manager.shared_storage import mounted_storage
from nni_manager.shared_storage.mounted_storage import MountedStorage, variables_of
from nni_manager.shared_storage.storage_folders import experiment_folder
from tests import bare_python
from tests.other_user import NOBODY
from tests.platforms.keeper_world import job_spec
from trial_runner import protocol

pytestmark = pytest.mark.unit

FOLDER = experiment_folder("exp1", "0123456789abcdef01234567")

ODD = "cat greeting.txt; echo \"it's $HOME\" `echo tick` '<% $parameters.x %>'\nprintf '%s\\n' \"$NNI_TRIAL_JOB_ID\""


class Mounted:
    """`there` leads to `here`, as a mount in a container would."""

    def __init__(self, folder: Path) -> None:
        self.here = folder / "here"
        self.here.mkdir()
        self.there = folder / "there"
        self.there.symlink_to(self.here)
        code = folder / "code"
        code.mkdir()
        (code / "greeting.txt").write_text("hello\n")
        (folder / "packed").mkdir()
        self.code = pack(code, folder / "packed").path
        self.storage = MountedStorage(self.here, str(self.there), FOLDER, 0o711, "service")

    async def put(self, spec: JobSpec) -> mounted_storage.AttemptFolder:
        variables = variables_of(spec, "test")
        return await self.storage.put(spec, variables, self.packed)

    async def packed(self) -> Path:
        return self.code

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{Path(bare_python.own()).parent}:/usr/bin:/bin", "HOME": "/nowhere"}
        return subprocess.run(
            ["/bin/sh", "-c", command], env=environment, cwd="/", capture_output=True, text=True, check=False
        )


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def spec(trial_id: str = "abcde", command: str = "cat greeting.txt") -> JobSpec:
    return job_spec(
        name=f"nni_exp_exp1_trial_{trial_id}",
        experiment_id="exp1",
        trial_id=trial_id,
        attempt=1,
        command=command,
        caller_environment={},
        code_directory="/nowhere",
        attempt_directory=f"/somewhere/trials/{trial_id}",
        runner_environment={protocol.ENV_TOKEN: "s3cret"},
    )


async def test_a_container_runs_the_command_with_code_and_parameters(mounted: Mounted) -> None:
    folder = await mounted.put(spec(command=ODD))
    ended = mounted.run(mounted.storage.start_command(folder))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "hello\nit's /nowhere tick <% $parameters.x %>\nabcde\n"
    assert json.loads((folder.here / protocol.RUNNER_FILE).read_text())["channel"] == protocol.PULL
    assert json.loads((folder.here / protocol.PARAMETER_FILE).read_text())["parameters"] == {"x": "ä"}
    assert folder.here == mounted.here / FOLDER / "abcde"


@pytest.mark.parametrize("command", ["cat greeting.txt", "exit 7", "kill -9 $$"])
async def test_ended_job_leaves_no_temporary_file(mounted: Mounted, tmp_path: Path, command: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    folder = await mounted.put(spec(command=f"{command}; env"))
    ended = mounted.run(f"export TMPDIR={temporary}; {mounted.storage.start_command(folder)}")
    assert list(temporary.iterdir()) == [] and protocol.ENV_TEMPORARY not in ended.stdout


async def test_shared_files_are_written_once(mounted: Mounted) -> None:
    put = await mounted.put(spec("aaaaa"))
    before = {path.name: path.stat().st_ino for path in (mounted.here / FOLDER).iterdir() if path.is_file()}
    again = MountedStorage(mounted.here, str(mounted.there), FOLDER, 0o711, "service")
    command = mounted.storage.start_command(put)
    mounted.storage = again
    assert again.start_command(await mounted.put(spec("aaaaa"))) == command
    assert {path.name: path.stat().st_ino for path in (mounted.here / FOLDER).iterdir() if path.is_file()} == before
    assert len(before) == 3


@pytest.mark.parametrize(
    ("pattern", "code"),
    [("run.sh", protocol.EXIT_BAD_CODE), ("code-*", protocol.EXIT_BAD_CODE), ("runner-*", protocol.EXIT_CANNOT_START)],
)
async def test_runner_replaced_by_another_user_is_not_run(
    mounted: Mounted, tmp_path: Path, pattern: str, code: int
) -> None:
    folder = await mounted.put(spec())
    [place] = mounted.here.rglob(pattern)
    _plant(place, tmp_path)
    ended = mounted.run(mounted.storage.start_command(folder))
    assert (ended.returncode, (tmp_path / "taken").exists()) == (code, False), ended.stderr
    assert "hello" not in ended.stdout and "evil" not in ended.stdout


async def test_the_next_manager_puts_the_right_code_there_again(mounted: Mounted, tmp_path: Path) -> None:
    await mounted.put(spec())
    for pattern in ("code-*", "runner-*"):
        [place] = mounted.here.rglob(pattern)
        _plant(place, tmp_path)
    mounted.storage = MountedStorage(mounted.here, str(mounted.there), FOLDER, 0o711, "service")
    ended = mounted.run(mounted.storage.start_command(await mounted.put(spec())))
    assert ended.stdout == "hello\n", ended.stderr


def _plant(place: Path, folder: Path) -> None:
    """Replaces a file, as another user may in a folder that all may write."""
    evil = folder / "evil"
    evil.mkdir(exist_ok=True)
    (evil / "greeting.txt").write_text("evil\n")
    made = {
        "code": lambda: pack(evil, folder / "planted").path.read_bytes(),
        "runner": lambda: f"open({str(folder / 'taken')!r}, 'w')\n".encode(),
        "run": lambda: f"touch {folder}/taken\n".encode(),
    }[place.name.partition("-")[0].partition(".")[0]]()
    place.unlink()
    place.write_bytes(made)


async def test_storage_contains_no_secret(mounted: Mounted) -> None:
    await mounted.put(spec())
    assert [path for path in mounted.here.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()] == []


async def test_container_user_can_write_only_own_folder(mounted: Mounted) -> None:
    folder = await mounted.put(spec())
    assert folder.here.stat().st_mode & 0o7777 == 0o1777
    assert folder.here.parent.stat().st_mode & 0o7777 == 0o711
    assert folder.here.parent.parent.stat().st_mode & 0o7777 == 0o711


@pytest.mark.machines
@pytest.mark.parametrize(("mode", "may"), [(0o700, False), (0o711, True)])
async def test_other_user_needs_mode_and_full_name(tmp_path: Path, mode: int, *, may: bool) -> None:
    """Another user that knows the listed names, and the trial's from the service's page."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        point = Path(place) / "nni"
        point.mkdir()
        point.chmod(0o1777)
        mounted = Mounted(tmp_path)
        mounted.storage = MountedStorage(point, str(point), FOLDER, mode, "service")
        folder = await mounted.put(spec())
        (seen,) = _as_another_user(f"ls {point}").split()
        assert seen == "exp1-01234567" and _as_another_user(f"ls {point}/{seen}") == ""
        for guess in (f"{point}/{seen}/abcde", f"{point}/exp1/abcde", f"{point}/{seen}/*/abcde"):
            _as_another_user(f"echo evil > {guess}/outbox")
        assert not list(point.rglob("outbox"))
        _as_another_user(f"echo evil > {folder.here}/told")
        assert (folder.here / "told").exists() == may


@pytest.mark.machines
async def test_another_user_cannot_make_the_folder_first(tmp_path: Path) -> None:
    """Another user that knows or guesses the experiment's id, which people may choose."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o1777)
        assert _as_another_user(f"umask 0; mkdir {place}/exp1 && echo made") == "made\n"
        mounted = Mounted(tmp_path)
        mounted.storage = MountedStorage(Path(place), place, FOLDER, 0o711, "service")
        ended = mounted.run(mounted.storage.start_command(await mounted.put(spec())))
        assert ended.stdout == "hello\n", ended.stderr


@pytest.mark.machines
@pytest.mark.parametrize("planted", ["mkdir code; echo evil > code/greeting.txt", "mkdir outbox", "ln -s /tmp outbox"])
@pytest.mark.parametrize("replica", ["", "2"])
async def test_folder_that_another_user_prepared_is_refused(tmp_path: Path, planted: str, replica: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o1777)
        mounted = Mounted(tmp_path)
        mounted.storage = MountedStorage(Path(place), place, FOLDER, 0o711, "service")
        folder = await mounted.put(spec())
        if replica:
            planted = f"mkdir -p replicas/{replica}; cd replicas/{replica}; {planted}"
        _as_another_user(f"umask 0; cd {folder.here} && {planted}")
        ended = mounted.run(mounted.storage.start_command(folder, replica))
        assert ended.returncode == protocol.EXIT_CANNOT_START and "belongs to another user" in ended.stderr
        assert "evil" not in ended.stdout


async def test_container_that_starts_again_keeps_its_folder(mounted: Mounted) -> None:
    folder = await mounted.put(spec(command="echo once >> kept; cat kept"))
    assert mounted.run(mounted.storage.start_command(folder)).stdout == "once\n"
    assert mounted.run(mounted.storage.start_command(folder)).stdout == "once\nonce\n"


def _as_another_user(command: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


async def test_only_experiments_folder_is_removed(mounted: Mounted) -> None:
    await mounted.put(spec())
    (mounted.here / "exp1").mkdir()
    (mounted.here / "exp2-01234567").mkdir()
    await mounted.storage.remove()
    assert sorted(one.name for one in mounted.here.iterdir()) == ["exp1", "exp2-01234567"]


def test_folders_of_an_earlier_version_have_the_plain_name() -> None:
    assert experiment_folder("exp1", "") == "exp1"


@pytest.mark.parametrize("name", ["exp1-01234567", FOLDER, f"{FOLDER}/abcde"])
async def test_a_link_in_the_place_of_a_folder_is_refused(mounted: Mounted, tmp_path: Path, name: str) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (mounted.here / name).parent.mkdir(parents=True, exist_ok=True)
    (mounted.here / name).symlink_to(private)
    with pytest.raises(PlatformUnavailable, match="a link or a file"):
        await mounted.put(spec())
    assert private.stat().st_mode & 0o777 == 0o700 and not list(private.iterdir())


async def test_replica_has_own_folder_and_does_not_report(mounted: Mounted) -> None:
    folder = await mounted.put(spec(command="cat greeting.txt"))
    ended = mounted.run(f"INDEX=1; {mounted.storage.start_command(folder, 'worker-$INDEX')}")
    assert ended.stdout == "hello\n", ended.stderr
    assert not (folder.here / protocol.RUNNER_FILE).exists()
    assert (folder.here / "replicas" / "worker-1" / protocol.STDOUT_FILE).read_text() == "hello\n"


async def test_an_unrelated_folder_is_named(mounted: Mounted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mounted_storage, "_PATIENCE_S", 0)
    folder = await mounted.put(spec())
    (tmp_path / "unrelated").mkdir()
    mounted.there.unlink()
    mounted.there.symlink_to(tmp_path / "unrelated")
    ended = mounted.run(mounted.storage.start_command(folder))
    assert ended.returncode == EXIT_OTHER_STORAGE
    report = Observation(state=JobState.FAILED, exit_code=ended.returncode)
    message = mounted.storage.explained(report, ("localField", "containerField")).message
    assert "widen" not in message
    assert message.startswith("containerField: ") and str(mounted.here) in message and str(mounted.there) in message


async def test_folder_closed_to_containers_is_named(mounted: Mounted) -> None:
    storage = MountedStorage(mounted.here, str(mounted.there), FOLDER, 0o700, "service")
    report = Observation(state=JobState.FAILED, exit_code=EXIT_OTHER_STORAGE)
    message = storage.explained(report, ("localField", "containerField")).message
    assert message.endswith("or its user may not enter the folder, whose mode is 0700: widen that to 0711")


async def test_an_image_without_python_is_named(mounted: Mounted, tmp_path: Path) -> None:
    folder = await mounted.put(spec())
    (tmp_path / "bin").mkdir()
    for name in ("sh", "cat", "cp", "cut", "mktemp", "sha256sum"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    ended = mounted.run(f"PATH={tmp_path}/bin; {mounted.storage.start_command(folder)}")
    assert (ended.returncode, "This image has no python3" in ended.stderr) == (protocol.EXIT_USAGE, True)


async def test_a_mount_that_is_away_is_unavailable(mounted: Mounted, tmp_path: Path) -> None:
    mounted.here.rename(tmp_path / "away")
    with pytest.raises(PlatformUnavailable) as raised:
        await mounted.put(spec())
    assert raised.value.refused and str(mounted.here) in str(raised.value)
    (tmp_path / "away").rename(mounted.here)
    await mounted.put(spec())


@pytest.mark.parametrize(("error", "becomes"), [(InvalidInput("too big"), SubmitRejected), (OSError(2, "no"), None)])
async def test_code_that_cannot_be_packed(mounted: Mounted, error: Exception, becomes: type[Exception] | None) -> None:
    async def fail() -> Path:
        raise error

    code: Callable[[], Awaitable[Path]] = fail
    with pytest.raises(becomes or PlatformUnavailable):
        await mounted.storage.put(spec(), {}, code)
