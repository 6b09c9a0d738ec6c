"""A container sees only what the service mounts, its command is process 1, and it outlives its creator."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import own_root, sandbox
from tests.fakes.own_root import Maker
from tests.fakes.sandbox import Container, Mount
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=sandbox.missing() or "-")
PATIENCE_S = 30


@pytest.fixture(params=[own_root.by_bubblewrap, own_root.by_unshare], ids=["bubblewrap", "unshare"], autouse=True)
def maker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Maker:
    made: Maker = request.param
    if made not in own_root.makers():
        pytest.skip(f"{request.node.name}: {made.__name__} does not work on this machine")
    monkeypatch.setattr(own_root, "makers", lambda: (made,))
    return made


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    folders: list[Path] = []

    def begin(*command: str, **fields: Any) -> Path:
        folders.append(tmp_path / f"container-{len(folders)}")
        sandbox.start(Container(folders[-1], command, fields.pop("environment", {}), **fields))
        return folders[-1]

    yield begin
    for folder in folders:
        sandbox.destroy(folder)


def ended(folder: Path) -> int:
    until(lambda: sandbox.exit_code(folder) is not None)
    code = sandbox.exit_code(folder)
    assert code is not None
    return code


def test_sandbox_contains_only_mounted_folders(begin: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "storage" / "team").mkdir(parents=True)
    (tmp_path / "inner").mkdir()
    mounts = [Mount(tmp_path / "storage", Path("/mnt/nfs")), Mount(tmp_path / "inner", Path("/mnt/nfs/team"))]
    probe = (
        f"! test -e {tmp_path} || exit 2; ! test -e {Path(__file__)} || exit 3; ! test -e {Path.home()}/.ssh || exit 4;"
        " ! touch /usr/bin/x 2>/dev/null || exit 5; echo >/mnt/nfs/outer; echo >/mnt/nfs/team/deeper; ls / /tmp; exit 7"
    )
    folder = begin("/bin/bash", "-c", probe, mounts=mounts)
    assert ended(folder) == 7, (folder / "stderr").read_text()
    assert (tmp_path / "storage" / "outer").exists() and (tmp_path / "inner" / "deeper").exists()
    assert "work" not in (folder / "stdout").read_text().split()


def test_restarted_container_runs_its_command_once(begin: Callable[..., Path], tmp_path: Path) -> None:
    """A service that was killed between a start and its note starts the container again."""
    script = "echo x >>/mnt/seen/runs; while [ ! -e /mnt/seen/go ]; do sleep 0.02; done; exit 3"
    mounts = [Mount(tmp_path, Path("/mnt/seen"))]
    folder = begin("/bin/bash", "-c", script, mounts=mounts)
    sandbox.start(Container(folder, ["/bin/bash", "-c", script], {}, mounts=mounts))
    (tmp_path / "go").touch()
    assert ended(folder) == 3
    sandbox.start(Container(folder, ["/bin/bash", "-c", script], {}, mounts=mounts))
    assert sandbox.exit_code(folder) == 3 and (tmp_path / "runs").read_text() == "x\n"


def test_interrupted_start_is_repeated(begin: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "container-0" / "left").mkdir(parents=True)
    folder = begin("/bin/bash", "-c", "exit 4")
    assert ended(folder) == 4 and not (folder / "left").exists()


def test_folder_of_a_destroyed_container_is_free_at_once(begin: Callable[..., Path], tmp_path: Path) -> None:
    """A reset service starts jobs with the same names, so leftovers must not be mistaken for the new job."""
    many = "for i in {1..40}; do sleep 60 & done; echo >/mnt/seen/ready; wait"
    for number in range(10):
        (tmp_path / f"{number}").mkdir()
        folder = begin("/bin/bash", "-c", many, mounts=[Mount(tmp_path / f"{number}", Path("/mnt/seen"))])
        until((tmp_path / f"{number}" / "ready").exists)
        sandbox.destroy(folder)
        shutil.rmtree(folder)
        sandbox.start(Container(folder, ["/bin/bash", "-c", "exit 4"], {}))
        assert ended(folder) == 4


def test_python_has_only_the_packages_of_the_image(
    begin: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "ours.py").write_text("NAME = 'ours'")
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "ours.py").symlink_to(tmp_path / "elsewhere" / "ours.py")
    monkeypatch.setenv(sandbox.IMAGE, json.dumps({"PYTHONPATH": str(tmp_path / "image"), "COLOUR": "blue"}))
    text = (
        "import importlib.util as u, os, ours, ssl, sqlite3\n"
        "print(ours.NAME, os.environ['COLOUR'], os.environ['OWN'], u.find_spec('nni_manager'), u.find_spec('httpx'))"
    )
    folder = begin("python3", "-c", text, environment={"OWN": "o"})
    assert ended(folder) == 0, (folder / "stderr").read_text()
    assert (folder / "stdout").read_text() == "ours blue o None None\n"


def test_command_is_process_1_and_shells_forward_no_signal(begin: Callable[..., Path], tmp_path: Path) -> None:
    mounts = [Mount(tmp_path, Path("/mnt/seen"))]
    script = (
        "echo $$ >/mnt/seen/first; (trap 'echo >/mnt/seen/heard' TERM; touch /mnt/seen/ready;"
        " while [ ! -e /mnt/seen/go ]; do sleep 0.05; done; exit 3); exit $?"
    )
    folder = begin("/bin/bash", "-c", script, mounts=mounts)
    until((tmp_path / "ready").exists)
    sandbox.terminate(folder)
    (tmp_path / "go").touch()
    assert ended(folder) == 3
    assert (tmp_path / "first").read_text() == "1\n" and not (tmp_path / "heard").exists()


def test_signal_handler_of_process_1_runs(begin: Callable[..., Path], tmp_path: Path) -> None:
    script = "trap 'exit 9' TERM; touch /mnt/seen/ready; while :; do sleep 0.05; done"
    folder = begin("/bin/bash", "-c", script, mounts=[Mount(tmp_path, Path("/mnt/seen"))])
    until((tmp_path / "ready").exists)
    sandbox.terminate(folder)
    assert ended(folder) == 9


def test_kill_ends_with_137_and_destroy_leaves_no_exit_code(begin: Callable[..., Path], tmp_path: Path) -> None:
    mounts = [Mount(tmp_path, Path("/mnt/seen"))]
    script = "env -i setsid sleep 1000 & echo >/mnt/seen/$NAME; wait"
    killed = begin("/bin/bash", "-c", script, mounts=mounts, environment={"NAME": "one"})
    until((tmp_path / "one").exists)
    sandbox.kill(killed)
    assert ended(killed) == 137
    gone = begin("/bin/bash", "-c", script, mounts=mounts, environment={"NAME": "two"})
    until((tmp_path / "two").exists)
    sandbox.destroy(gone)
    until(lambda: not list(sandbox._marked(gone)))
    assert sandbox.exit_code(gone) is None


def test_command_can_enter(begin: Callable[..., Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # before the start, because the command reads it at once
    folder = begin(
        "/bin/bash",
        "-c",
        "touch /mnt/seen/ready; read -r _ </mnt/seen/pipe; exit 4",
        mounts=[Mount(tmp_path, Path("/mnt/seen"))],
    )
    until((tmp_path / "ready").exists)
    inside = sandbox.entering(folder, ["/bin/sh", "-c", f"cat; ls -d {tmp_path} 2>/dev/null; cat /proc/1/comm"])
    done = subprocess.run(inside, input=b"hello\n", capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == b"hello\nbash\n", done.stderr
    with open(tmp_path / "pipe", "w") as pipe:
        pipe.write("\n")
    assert ended(folder) == 4
    with pytest.raises(ProcessLookupError):
        sandbox.entering(folder, ["true"])


def test_file_placed_by_the_service_can_be_run(begin: Callable[..., Path]) -> None:
    folder = begin(
        "/opt/service/run", "5", files={"/opt/service/run": "#!/bin/bash\nset -u\nexit $1\n"}, directory="/tmp"
    )
    assert ended(folder) == 5, (folder / "stderr").read_text()


def test_container_has_the_given_rights(begin: Callable[..., Path], maker: Maker) -> None:
    mount = ("/bin/sh", "-c", "mkdir /mnt/own && mount --bind /usr /mnt/own && test -d /mnt/own/bin && exit 3")
    without, given = begin(*mount, capabilities=["chown"]), begin(*mount, capabilities=["chown", "sys_admin"])
    assert ended(without) != 3 and "permission denied" in (without / "stderr").read_text()
    may_give = os.geteuid() == 0 or maker is own_root.by_unshare
    assert (ended(given) == 3) == may_give, (given / "stderr").read_text()


def test_file_can_be_covered_and_device_shown(begin: Callable[..., Path]) -> None:
    files = {"/usr/bin/mount": "#!/bin/sh\nexit 6\n"}
    folder = begin(
        "/bin/sh", "-c", "echo > /dev/zzz && mount", files=files, steps=[("device", "/dev/null", "/dev/zzz")]
    )
    assert ended(folder) == 6, (folder / "stderr").read_text()
