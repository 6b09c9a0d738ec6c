"""Containers with a root of their own: what the service does not mount does not exist there.

The root is a fresh tmpfs with what lies in `/usr`, a `python3` without packages and a short `/etc`, all read-only.
Homes of the machine, its `/tmp`, its data and the repository are absent. The command is process 1 of a process
namespace, with nothing before it: as in every container a signal for which it has no handler does nothing, and with
its end all others end. It is made by bubblewrap (`bwrap`), by `unshare` where that fails; `missing()` says so where
neither works. The network is the machine's.

A container outlives the process that started it: its exit code is written to its folder, where another one finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import own_root
from tests.fakes.own_root import Maker, Step

#: Variable of the process that starts containers: a JSON object of the variables that all images bring. What lies in
#: the folders of its PYTHONPATH are packages of the image.
IMAGE = "FAKE_IMAGE"
#: The same, of images with runners that try to reach the manager for one second instead of fifteen.
SOON_READ = json.dumps({"NNI_RUNNER_DRAIN_S": "1"})
#: The image's `python3` comes first.
PATH = f"{Path(os.path.realpath(sys.executable)).parent}:{own_root.PROGRAMS}"
_MARK = "FAKE_CONTAINER"
_LONGEST_END_S = 20
_PACKAGES = "/opt/image"
_FOLDERS = ("/root", "/home", "/mnt", "/opt", "/run", "/var/tmp", "/var/log")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ssl", "/etc/alternatives", "/etc/resolv.conf", "/etc/hosts", "/etc/localtime")
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine, and where the container sees it."""

    source: Path
    target: Path
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """`folder`: its own, made by `start`, which leaves `stdout`, `stderr` and `exit` there. `command`: process 1.

    `files`: path inside → text, executable, read-only: what the service puts there. Mounts come in their order; one may
    lie in another. `directory`: where the command begins. `steps`: more of its root, before `files`. `capabilities`:
    what it has of root's rights, without `CAP_`; None: all that it can be given.
    """

    folder: Path
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    mounts: Sequence[Mount] = ()
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    directory: str = "/root"
    steps: Sequence[Step] = ()
    capabilities: Sequence[str] | None = None


def missing() -> str:
    """Why no container can be made here; empty: one can."""
    return "" if own_root.makers() else "containers need bubblewrap, or the right to `unshare` mounts and processes"


def start(container: Container) -> None:
    """Returns when it is on its way; quiet where it is already. RuntimeError where no container can be made.

    A service that was killed after a start and before it noted it starts the container again by its name.
    """
    if reason := missing():
        raise RuntimeError(reason)
    folder = container.folder
    if _is_started(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)  # what a killed start left
    folder.mkdir(parents=True)
    make = _maker(container)
    made = make(_root(container), container.command, container.directory, container.capabilities)
    lasting = f"{shlex.join(made)} >stdout 2>stderr; echo $? >exit.new; mv exit.new exit"
    subprocess.run(  # detached, so that no process has to wait for it
        ["setsid", "--fork", "/bin/sh", "-c", lasting],
        cwd=folder,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(container),
    )


def _maker(container: Container) -> Maker:
    """By bubblewrap an ordinary user cannot give the right to mount."""
    wants_mounts = "sys_admin" in (container.capabilities or ())
    return own_root.makers()[-1 if wants_mounts and os.geteuid() else 0]


def _is_started(folder: Path) -> bool:
    return (folder / "stdout").exists() or any(_marked(folder))


def exit_code(folder: Path) -> int | None:
    """Of process 1, 128 and more by a signal; None while it runs."""
    with suppress(FileNotFoundError):
        return int((folder / "exit").read_text())
    return None


def terminate(folder: Path) -> None:
    """SIGTERM to process 1 and to nothing else, as a node's agent does; quiet where there is none."""
    _signal_first(folder, signal.SIGTERM)


def kill(folder: Path) -> None:
    """SIGKILL to process 1, with which all others end, as after the grace. The exit code is 137."""
    _signal_first(folder, signal.SIGKILL)


def destroy(folder: Path) -> None:
    """All of it, without an exit code; quiet where there is nothing. TimeoutError: something there does not end.

    Returns when nothing of it is left: another may be started in the same folder, and a killed process takes a moment.
    """
    limit = time.monotonic() + _LONGEST_END_S
    while left := list(_marked(folder)):
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > limit:
            raise TimeoutError(f"{folder}: processes {left} do not end")
        time.sleep(0.002)


def entering(folder: Path, command: Sequence[str]) -> list[str]:
    """A command of this machine that runs `command` inside, as `exec` does. ProcessLookupError: nothing runs there."""
    first = _first(folder)
    if first is None:
        raise ProcessLookupError(f"{folder}: no container runs there")
    user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
    return ["nsenter", "--target", str(first), *user, "--mount", "--pid", "--", *command]


# What it finds there


def _root(container: Container) -> list[Step]:
    steps = image(container.folder, container.files, container.steps)
    for mount in container.mounts:
        steps.append(("read" if mount.is_read_only else "bind", str(mount.source), str(mount.target)))
    return steps


def image(folder: Path, files: Mapping[str, str] | None = None, more: Sequence[Step] = ()) -> list[Step]:
    """What all images have, and these files, after `more`. `folder`: for what is written to be shown."""
    steps: list[Step] = [*_programs(), *own_root.libraries(), *(("folder", at) for at in _FOLDERS)]
    steps += [("read", one, one) for one in _SETTINGS if os.path.exists(one)]
    steps += [*_python(folder), *_packages(), *more]
    for number, (path, text) in enumerate({**_FILES, **(files or {})}.items()):
        written = folder / f"file-{number}"
        written.write_text(text)
        written.chmod(0o755)
        steps.append(("read", str(written), path))
    return steps


def _programs() -> Iterator[Step]:
    """`/usr`, where services mount folders of their own beside what is there, in `/usr/local` too."""
    for one in (*Path("/usr").iterdir(), *Path("/usr/local").iterdir()):
        if one.is_symlink():
            yield "link", os.readlink(one), str(one)
        elif one != Path("/usr/local"):
            yield "read", str(one), str(one)


def _python(folder: Path) -> list[Step]:
    """The interpreter of these tests, where it is not the system's own. Its packages are not the image's."""
    prefix = Path(sys.base_prefix).resolve()
    if prefix.is_relative_to("/usr"):
        return []
    (folder / "no-packages").mkdir(exist_ok=True)
    packages = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    return [("read", str(prefix), str(prefix)), ("read", str(folder / "no-packages"), str(packages))]


def _packages() -> Iterator[Step]:
    """Each by itself, and what links lead to, for nothing else of their folders is the image's."""
    for number, folder in enumerate(_package_folders()):
        for one in sorted(folder.iterdir()):
            yield "read", str(one.resolve()), f"{_PACKAGES}/{number}/{one.name}"


def _package_folders() -> list[Path]:
    return [Path(one) for one in _image().get("PYTHONPATH", "").split(":") if one]


def _image() -> dict[str, str]:
    found: dict[str, str] = json.loads(os.environ.get(IMAGE, "{}"))
    return found


def variables() -> dict[str, str]:
    """Those that all images bring, as they are inside."""
    found = _image()
    if folders := _package_folders():
        found["PYTHONPATH"] = ":".join(f"{_PACKAGES}/{number}" for number in range(len(folders)))
    return found


def _environment(container: Container) -> dict[str, str]:
    return {"PATH": PATH, "HOME": "/root", **variables(), **container.environment, _MARK: _mark(container.folder)}


# Its processes


def _mark(folder: Path) -> str:
    """No path of the machine."""
    return hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:24]


def _marked(folder: Path) -> Iterator[int]:
    """Its processes, and those around it, by their ids here."""
    mark = f"{_MARK}={_mark(folder)}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def _first(folder: Path) -> int | None:
    """Process 1 by its id here; None where there is none, or not yet."""
    for pid in _marked(folder):
        with suppress(OSError):
            ids = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "NSpid" in line]
            if len(ids[0]) > 2 and ids[0][-1] == "1":
                return pid
    return None


def _signal_first(folder: Path, number: int) -> None:
    first = _first(folder)
    with suppress(ProcessLookupError):
        if first is not None:
            os.kill(first, number)
