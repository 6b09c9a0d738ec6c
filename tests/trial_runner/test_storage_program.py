"""What a machine says of shared storage: the program as it is sent, with and without rights and programs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from nni_manager.shared_storage import shared_mount
from nni_manager.shared_storage.shared_mount import KEY_VARIABLE, Mark, program

NFS = {
    "storageType": "NFS",
    "localMountPoint": "/mnt/of/manager",
    "nfsServer": "files.example.test",
    "exportedDirectory": "/data/team one",
}
KEY = "c2VjcmV0+of/the:account=="
BLOB = {
    "storageType": "AzureBlob",
    "localMountPoint": "/mnt/of/manager",
    "storageAccountName": "shop",
    "storageAccountKey": KEY,
    "containerName": "models",
}
ROOT = "import os; os.geteuid = lambda: 0\n"
SOMEBODY = "import os, getpass; os.geteuid = lambda: 1000; getpass.getuser = lambda: 'ann'\n"
NO_PROGRAMS = "import shutil; shutil.which = lambda *_, **__: None\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Machine:
    """A home folder, and programs that stand in for the system's."""

    def __init__(self, folder: Path) -> None:
        self.home, self.programs, self.folder = folder / "home", folder / "bin", folder
        self.home.mkdir()
        self.programs.mkdir()

    def has(self, name: str, script: str = "exit 0") -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.folder}/calls\n{script}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def ask(
        self,
        action: str,
        storage: dict[str, Any],
        point: Any,
        *,
        before: str = "",
        user: str = "id.exp.local",
        **how: Any,
    ) -> dict[str, str]:
        text = before + program(action, storage, str(point), user=user, **how)
        environment = {"HOME": str(self.home), "PATH": f"{self.programs}:{os.environ['PATH']}"}
        said = subprocess.run(
            [sys.executable, "-c", "import sys; exec(sys.stdin.read())"],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert not said.stderr, said.stderr
        told: dict[str, str] = json.loads(said.stdout)
        return told

    def in_job(self, storage: dict[str, Any], point: Path, *, before: str) -> subprocess.CompletedProcess[str]:
        text = program("use", storage, str(point), user="id.exp.openpai", otherwise="or do without")
        assert KEY not in text
        home = {"HOME": str(self.home), "TMPDIR": str(self.folder)}
        environment = {**home, "PATH": f"{self.programs}:{os.environ['PATH']}", KEY_VARIABLE: KEY}
        command = [sys.executable, "-I", "-"]
        return subprocess.run(
            command, input=before + text, env=environment, capture_output=True, text=True, check=False, timeout=30
        )

    @property
    def kept(self) -> list[Path]:
        """What it remembers, of mounts of ours."""
        return [path for path in self.folder.rglob(".nni-manager/**/*") if path.is_file() and path.suffix != ".lock"]


class Booted:
    """A machine with mounts, a name and a boot of its own, and the home folder and programs of `machine`."""

    def __init__(self, machine: Machine, point: Path, name: str) -> None:
        self._machine, self._point, self._name = machine, point, name
        self._files = {where: machine.folder / f"{name}.{where.rpartition('/')[2]}" for where in self._SHOWN}
        for path in self._files.values():
            path.write_text("")
        self._table = self._files["/proc/self/mountinfo"]
        self.boot(f"{name}, first")
        for program_name in ("mount.nfs", "mount", "umount"):
            machine.has(program_name, self._SCRIPTS.get(program_name, "exit 0"))

    _SHOWN = ("/proc/self/mountinfo", "/proc/sys/kernel/random/boot_id", "/etc/machine-id")
    _SCRIPTS: ClassVar = {
        "mount": 'for point; do :; done; echo "1 1 0:1 / $point rw - nfs4 server:/ rw" >> $TABLE',
        "umount": ": > $TABLE",
    }

    def boot(self, id: str) -> None:
        """Begins a boot; no mount lives through it."""
        self._table.write_text("")
        self._files["/proc/sys/kernel/random/boot_id"].write_text(id + "\n")

    def ask(self, action: str, user: str) -> str:
        shown = {where: str(path) for where, path in self._files.items()}
        before = f"""
import builtins, os, types
_open, _shown = builtins.open, {shown!r}
builtins.open = lambda path, *a, **k: _open(_shown.get(path, path), *a, **k)
os.uname = lambda: types.SimpleNamespace(nodename={self._name!r})
os.environ["TABLE"] = {str(self._table)!r}
"""
        return self._machine.ask(action, NFS, self._point, before=ROOT + before, user=user)["state"]

    @property
    def is_mounted(self) -> bool:
        return bool(self._table.read_text())


def test_machines_with_one_home_folder_have_mounts_of_their_own(machine: Machine, tmp_path: Path) -> None:
    one, other = (Booted(machine, tmp_path / "point", name) for name in ("one", "other"))
    assert (one.ask("use", "1"), other.ask("use", "2"), one.ask("use", "2")) == ("ready", "ready", "ready")
    assert one.ask("leave", "2") == "ready" and one.is_mounted, "the first experiment has trials there"
    assert other.ask("leave", "2") == "absent" and not other.is_mounted
    assert one.ask("leave", "1") == "absent" and not one.is_mounted
    assert not machine.kept


def test_records_of_an_earlier_boot_are_removed(machine: Machine, tmp_path: Path) -> None:
    """Where the home folder has another machine's, that one stays."""
    one, other = (Booted(machine, tmp_path / "point", name) for name in ("one", "other"))
    assert (one.ask("use", "1"), other.ask("use", "2")) == ("ready", "ready")
    one.boot("one, second")
    assert one.ask("leave", "1") == "absent"
    assert other.is_mounted and [path.name for path in machine.kept if path.parent.name == "users"] == ["2"]
    assert one.ask("use", "3") == "ready" and one.ask("leave", "3") == "absent" and not one.is_mounted
    assert other.ask("leave", "2") == "absent" and not other.is_mounted and not machine.kept


@pytest.mark.parametrize("action", ["look", "use"])
def test_user_without_mount_permission_gets_the_command(machine: Machine, tmp_path: Path, action: str) -> None:
    point = tmp_path / "mount it"
    machine.has("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    told = machine.ask(action, NFS, point, before=SOMEBODY)
    assert told["state"] == "denied" and "user ann may not mount" in told["sentence"]
    typed = f"`sudo mkdir -p '{point}' && sudo mount -t nfs 'files.example.test:/data/team one' '{point}'`"
    assert told["fix"] == f"type there: {typed}"
    assert not point.exists() and not machine.kept, "nothing was tried"
    assert machine.calls == ["sudo -n mount --version"]


def test_sudo_without_a_password_mounts_and_unmounts(machine: Machine, tmp_path: Path) -> None:
    """Also where a folder that only root may make is missing."""
    point, words = tmp_path / "closed" / "point", "files.example.test:/data/team one"
    machine.has("sudo", 'shift; exec "$@"')
    for name in ("mount.nfs", "mount", "umount"):
        machine.has(name)
    closed = (
        SOMEBODY
        + f"""
import os
_access, _makedirs = os.access, os.makedirs
os.access = lambda path, mode: path != {str(tmp_path)!r} and _access(path, mode)
def makedirs(path, *a, **k):
    if path == {str(point)!r}:
        raise PermissionError(13, "Permission denied", path)
    _makedirs(path, *a, **k)
os.makedirs = makedirs
"""
    )
    assert machine.ask("look", NFS, point, before=closed)["state"] == "mountable"
    assert not point.exists()
    told = machine.ask("use", NFS, point, before=closed)
    assert point.is_dir() and "is missing" in told["sentence"], "these programs only say that they did"
    assert f"sudo -n mkdir -p {point}" in machine.calls
    assert f"sudo -n mount -t nfs -o retry=0 {words} {point}" in machine.calls
    assert f"sudo -n umount {point}" in machine.calls
    assert not any(call.startswith("sudo") and "-n" not in call for call in machine.calls), "nothing may prompt"


@pytest.mark.parametrize(
    ("storage", "words", "fix"),
    [(NFS, "mount.nfs is not installed", "nfs-common"), (BLOB, "blobfuse2 is not installed", "BlobFuse2")],
)
def test_a_program_that_is_not_installed(
    machine: Machine, tmp_path: Path, storage: dict[str, Any], words: str, fix: str
) -> None:
    told = machine.ask("look", storage, tmp_path / "point", before=ROOT + NO_PROGRAMS)
    assert told["state"] == "absent" and words in told["sentence"] and fix in told["fix"]


@pytest.mark.parametrize(
    ("storage", "who", "words", "fix"),
    [
        (NFS, ROOT + NO_PROGRAMS, "mount.nfs is not installed", "use an image that has nfs-common (nfs-utils)"),
        (BLOB, ROOT + NO_PROGRAMS, "blobfuse2 is not installed", "use an image that has blobfuse2"),
        (NFS, SOMEBODY, "user ann may not mount", "use an image with root as its user"),
    ],
)
def test_job_message_has_advice(
    machine: Machine, tmp_path: Path, storage: dict[str, Any], who: str, words: str, fix: str
) -> None:
    machine.has("sudo", "exit 1")
    ended = machine.in_job(storage, tmp_path / "point", before=who)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("sharedStorage: ") and words in ended.stderr
    assert ended.stderr.endswith(f"; {fix}; or do without\n")


def test_key_variable_is_not_inherited_by_processes(machine: Machine, tmp_path: Path) -> None:
    machine.has("blobfuse2", f'env > {tmp_path}/seen; cat "${{3#*=}}" > {tmp_path}/settings; exit 1')
    ended = machine.in_job(BLOB, tmp_path / "point", before=ROOT)
    assert json.loads((tmp_path / "settings").read_text())["azstorage"]["account-key"] == KEY
    assert KEY not in (tmp_path / "seen").read_text() + ended.stderr and not machine.kept


def test_key_file_in_job_is_not_in_home(machine: Machine, tmp_path: Path) -> None:
    """Which may be on storage, and that of several jobs at once."""
    told = f'grep -rl {KEY} {machine.home} > {tmp_path}/shown; echo "${{3#*=}}" > {tmp_path}/place'
    machine.has("blobfuse2", f'{told}; echo "$HOME" > {tmp_path}/own; exit 1')
    machine.in_job(BLOB, tmp_path / "point", before=ROOT)
    assert (tmp_path / "shown").read_text() == "" and not list(machine.home.iterdir())
    settings, own = ((tmp_path / name).read_text().strip() for name in ("place", "own"))
    assert settings.startswith(f"{own}/.nni-manager/") and Path(own).parent == tmp_path, "BlobFuse2's own files, too"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mounting is waited for for a second."""
    text = shared_mount._PROGRAM.read_text()
    assert "_MOUNT_S, _PATIENCE_S, _LOOK_S = 20.0," in text
    (tmp_path / "program.py").write_text(text.replace("_LOOK_S = 20.0,", "_LOOK_S = 1.0,"))
    monkeypatch.setattr(shared_mount, "_PROGRAM", tmp_path / "program.py")


@pytest.mark.usefixtures("impatient")
def test_mount_without_an_answer_ends_with_its_helper(machine: Machine, tmp_path: Path) -> None:
    """Which would mount it later, when no record has it."""
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    machine.has("mount.nfs")
    machine.has("mount", f"sleep 20 > {tmp_path}/alive & echo > {tmp_path}/begun; wait")
    told = machine.ask("use", NFS, tmp_path / "point", before=ROOT)
    assert told["state"] == "failed" and "no answer within 1 s" in told["sentence"]
    assert (tmp_path / "begun").exists() and select.select([alive], [], [], 5)[0], "the helper runs on"
    os.close(alive)


@pytest.mark.usefixtures("impatient")
def test_mount_by_sudo_without_an_answer_is_said(machine: Machine, tmp_path: Path) -> None:
    machine.has("sudo", 'shift; exec "$@"')
    machine.has("mount.nfs")
    machine.has("mount", f'[ "$1" = --version ] || {{ echo $$ > {tmp_path}/pid; exec sleep 20; }}')
    denied = SOMEBODY + "def denied(*_):\n    raise PermissionError(1, 'denied')\nos.kill = os.killpg = denied\n"
    told = machine.ask("use", NFS, tmp_path / "point", before=denied)
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert "could not be mounted at" in told["sentence"] and "no answer within 1 s" in told["sentence"], told
    assert not machine.kept


def test_looking_changes_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.has("mount.nfs")
    machine.has("mount")
    assert machine.ask("look", NFS, tmp_path / "point", before=ROOT)["state"] == "mountable"
    assert not machine.calls and not (tmp_path / "point").exists()


def test_a_server_that_refuses(machine: Machine, tmp_path: Path) -> None:
    machine.has("mount.nfs")
    machine.has("mount", "echo 'mount.nfs: access denied by server' >&2; exit 32")
    told = machine.ask("use", NFS, tmp_path / "point", before=ROOT)
    assert told["state"] == "failed" and "access denied by server" in told["sentence"] and "its address" in told["fix"]
    assert machine.calls == [f"mount -t nfs -o retry=0 files.example.test:/data/team one {tmp_path}/point"]
    assert not machine.kept


def test_the_accounts_key_is_in_a_file_of_its_own(machine: Machine, tmp_path: Path) -> None:
    machine.has(
        "blobfuse2",
        f"f=${{3#--config-file=}}; stat -c %a $f > {tmp_path}/mode; cp $f {tmp_path}/settings; "
        f"echo 'refused: {KEY}' >&2; exit 1",
    )
    told = machine.ask("use", BLOB, tmp_path / "point", before=SOMEBODY)
    assert told["state"] == "failed" and told["sentence"].endswith("refused: ******"), told
    assert (tmp_path / "mode").read_text() == "600\n"
    settings = yaml.safe_load((tmp_path / "settings").read_text())
    assert settings["azstorage"] == {
        "type": "block",
        "mode": "key",
        "account-name": "shop",
        "account-key": KEY,
        "container": "models",
    }
    assert settings["components"] == ["libfuse", "file_cache", "attr_cache", "azstorage"]
    assert settings["libfuse"]["kernel-list-cache-expiration-sec"] == settings["libfuse"]["entry-expiration-sec"] == 5
    assert settings["allow-other"] is False, "a user may not open it to others"
    assert KEY not in "".join(machine.calls) and not machine.kept


def test_lost_mount_is_reported(machine: Machine, tmp_path: Path) -> None:
    machine.has("mount.nfs")
    machine.has("mount")
    machine.has("umount")
    told = machine.ask("use", NFS, tmp_path / "point", before=ROOT)
    assert told["state"] == "failed" and "is missing" in told["sentence"] and not machine.kept


def test_another_file_system_at_the_place(machine: Machine) -> None:
    told = machine.ask("use", NFS, "/proc", before=ROOT)
    assert told["state"] == "other" and "proc of proc is mounted at /proc, not files.example.test" in told["sentence"]


def test_a_folder_with_other_files_is_not_mounted_over(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "point").mkdir()
    (tmp_path / "point" / "thesis.tex").touch()
    told = machine.ask("use", NFS, tmp_path / "point", before=ROOT)
    assert told["state"] == "other" and "other files in it" in told["sentence"] and not machine.calls


@pytest.mark.parametrize(("text", "state"), [("one\n", "ready"), ("two", "other")])
def test_marker_file_identifies_storage(machine: Machine, text: str, state: str) -> None:
    """Relative to the home folder."""
    (machine.home / "mnt").mkdir()
    (machine.home / "mnt" / "mark").write_text(text)
    told = machine.ask("use", NFS, "mnt", before=SOMEBODY, mark=Mark(file="mark", text="one"))
    assert (told["state"], told["point"]) == (state, str(machine.home / "mnt"))
    assert state == "ready" or "not the storage that the manager has at /mnt/of/manager" in told["sentence"]


def test_a_folder_that_its_user_has_mounted_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "point").mkdir()
    assert machine.ask("use", NFS, tmp_path / "point", may_mount=False)["state"] == "ready"
    assert machine.ask("leave", NFS, tmp_path / "point", may_mount=False)["state"] == "absent"
    assert not machine.calls and not machine.kept
    told = machine.ask("look", NFS, tmp_path / "nowhere", may_mount=False)
    assert told["state"] == "absent" and "sudo mount -t nfs" in told["fix"]
