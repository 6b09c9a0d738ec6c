"""Containers, as far as processes of this machine can be some: a clean environment, a fresh folder, an end for all.

A container is a shell script with a folder of its own. It outlives whoever started it: its exit code is written to its
folder, so that a fake that was started again finds it. Storage is seen where the container mounts it: by a link, or,
with `namespaces` (as root), by a bind mount in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: No wrapper of an interpreter, which would find the packages of ours.
_PATH = f"{Path(os.path.realpath(sys.executable)).parent}:/usr/bin:/bin"
_MARK = "FAKE_CONTAINER"
#: Variable of whoever starts containers: a JSON object of the variables that all images bring.
IMAGE = "FAKE_IMAGE"
#: The same of images whose runners, where they cannot reach the manager, try for a second instead of fifteen.
SOON_READ = json.dumps({"NNI_RUNNER_DRAIN_S": "1"})
#: Shell text of the first process: what it starts is the container's, and its end the container's.
_INIT = (
    "/bin/sh {script} >{folder}/stdout 2>{folder}/stderr & echo $! >{folder}/pid.new; mv {folder}/pid.new {folder}/pid;"
    " wait $!; echo $? >{folder}/exit.new; mv {folder}/exit.new {folder}/exit"
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of this machine, and where containers see it."""

    source: Path
    target: Path


def start(
    folder: Path, script: str, environment: Mapping[str, str], mounts: list[Mount], *, namespaces: bool = False
) -> int:
    """The first process's id. `folder`: fresh, made here."""
    (folder / "work").mkdir(parents=True)
    (folder / "script").write_text(script)
    init = _INIT.format(folder=shlex.quote(str(folder)), script=shlex.quote(str(folder / "script")))
    command = ["/bin/sh", "-c", init]
    if namespaces:
        command = ["unshare", "--mount", "/bin/sh", "-c", _mounting(mounts) + init]
    else:
        for mount in mounts:
            _link(mount)
    process = subprocess.Popen(  # whoever started it waits for nobody: a daemon of its own
        ["setsid", "--fork", *command], cwd=folder / "work", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": _PATH, "HOME": str(folder / "work"), _MARK: str(folder), **_image(), **environment},
    )  # fmt: skip
    return process.wait()


def _image() -> Mapping[str, str]:
    found: dict[str, str] = json.loads(os.environ.get(IMAGE, "{}"))
    return found


def _mounting(mounts: list[Mount]) -> str:
    steps = ["mount -t tmpfs none /mnt"]
    for mount in mounts:
        source, target = shlex.quote(str(mount.source)), shlex.quote(str(mount.target))
        steps.append(f"mkdir -p {target} && mount --bind {source} {target}")
    return " && ".join(steps) + " || exit 1; "


def _link(mount: Mount) -> None:
    if mount.target.is_symlink() or mount.target == mount.source:
        return
    mount.target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        mount.target.symlink_to(mount.source)


def exit_code(folder: Path) -> int | None:
    """None while it runs."""
    with suppress(FileNotFoundError):
        return int((folder / "exit").read_text())
    return None


def terminate(folder: Path) -> None:
    """SIGTERM to its main process, as a node's agent does."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)


def destroy(folder: Path) -> None:
    """All of it, at once; quiet where there is nothing."""
    mark = f"{_MARK}={folder}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
