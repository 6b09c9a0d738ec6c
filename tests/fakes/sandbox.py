"""Containers with their own root, which contains only what the service mounts.

The root is a new tmpfs with `/usr`, a `python3` without packages and a short `/etc`, all read-only. The machine's home
folders, `/tmp`, data and the repository are absent. The command is process 1 of a process namespace: a signal without a
handler has no effect, and its end ends all others. bubblewrap (`bwrap`) creates it, else `unshare`; if neither works,
`missing()` gives the reason. The network is the machine's.

A container outlives the process that started it: other processes find its exit code in its folder.
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

#: Variable of the process that starts containers: a JSON object with the variables of all images. Packages in the
#: folders of its PYTHONPATH belong to the image.
IMAGE = "FAKE_IMAGE"
#: The same for images whose runners try to connect for one second instead of fifteen.
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
    """A local folder or file, and its path in the container."""

    source: Path
    target: Path
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """`folder`: created by `start`, for `stdout`, `stderr` and `exit`. `command`: process 1.

    `files`: path inside → text, executable, read-only: files of the service. Mounts apply in order and may be nested.
    `directory`: initial folder. `steps`: further steps of its root, before `files`. `capabilities`: without `CAP_`;
    None: all available ones.
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
    """Why containers cannot be created here; empty: they can."""
    return "" if own_root.makers() else "containers need bubblewrap, or the right to `unshare` mounts and processes"


def start(container: Container) -> None:
    """Start a container, unless it already exists. Raises RuntimeError if containers cannot be created.

    A service that was killed between a start and its note starts the container again by its name.
    """
    if reason := missing():
        raise RuntimeError(reason)
    folder = container.folder
    if _is_started(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)  # leftovers of a killed start
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
    """With bubblewrap an ordinary user cannot grant the right to mount."""
    wants_mounts = "sys_admin" in (container.capabilities or ())
    return own_root.makers()[-1 if wants_mounts and os.geteuid() else 0]


def _is_started(folder: Path) -> bool:
    return (folder / "stdout").exists() or any(_marked(folder))


def exit_code(folder: Path) -> int | None:
    """Exit code of process 1, from 128 on for a signal; None while it runs."""
    with suppress(FileNotFoundError):
        return int((folder / "exit").read_text())
    return None


def terminate(folder: Path) -> None:
    """Send SIGTERM only to process 1, like a node's agent; does nothing if it has ended."""
    _signal_first(folder, signal.SIGTERM)


def kill(folder: Path) -> None:
    """Kill process 1 and thereby all others, as after the grace period. The exit code is 137."""
    _signal_first(folder, signal.SIGKILL)


def destroy(folder: Path) -> None:
    """Destroy the container without an exit code, if it exists. Raises TimeoutError if a process does not end.

    Returns when nothing is left, because another container may start in the same folder.
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
    """A local command that runs `command` inside, like `exec`. Raises ProcessLookupError if nothing runs there."""
    first = _first(folder)
    if first is None:
        raise ProcessLookupError(f"{folder}: no container runs there")
    user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
    return ["nsenter", "--target", str(first), *user, "--mount", "--pid", "--", *command]


# Contents


def _root(container: Container) -> list[Step]:
    steps = image(container.folder, container.files, container.steps)
    for mount in container.mounts:
        steps.append(("read" if mount.is_read_only else "bind", str(mount.source), str(mount.target)))
    return steps


def image(folder: Path, files: Mapping[str, str] | None = None, more: Sequence[Step] = ()) -> list[Step]:
    """Steps for the contents of all images and these files, after `more`. `folder`: for written files."""
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
    """`/usr`, in which services can add mounts, also in `/usr/local`."""
    for one in (*Path("/usr").iterdir(), *Path("/usr/local").iterdir()):
        if one.is_symlink():
            yield "link", os.readlink(one), str(one)
        elif one != Path("/usr/local"):
            yield "read", str(one), str(one)


def _python(folder: Path) -> list[Step]:
    """The tests' interpreter, unless it is the system's. Its packages are not part of the image."""
    prefix = Path(sys.base_prefix).resolve()
    if prefix.is_relative_to("/usr"):
        return []
    (folder / "no-packages").mkdir(exist_ok=True)
    packages = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    return [("read", str(prefix), str(prefix)), ("read", str(folder / "no-packages"), str(packages))]


def _packages() -> Iterator[Step]:
    """Single files and the targets of links, because the rest of their folders is not part of the image."""
    for number, folder in enumerate(_package_folders()):
        for one in sorted(folder.iterdir()):
            yield "read", str(one.resolve()), f"{_PACKAGES}/{number}/{one.name}"


def _package_folders() -> list[Path]:
    return [Path(one) for one in _image().get("PYTHONPATH", "").split(":") if one]


def _image() -> dict[str, str]:
    found: dict[str, str] = json.loads(os.environ.get(IMAGE, "{}"))
    return found


def variables() -> dict[str, str]:
    """Variables of all images, with paths inside the container."""
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
    """Its processes and their parents, by their ids on this machine."""
    mark = f"{_MARK}={_mark(folder)}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def _first(folder: Path) -> int | None:
    """Id of process 1 on this machine; None: it does not run."""
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
