"""The root of a container: only the image and the pod's mounts, nothing else of the manager's machine.

The process has its own mount namespace, but keeps its process id, so signals and exit codes do not change. Its folders
keep their local paths, to which texts are rewritten (`paths`).
"""

from __future__ import annotations

import functools
import itertools
import os
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.fakes.own_root import DEVICES, PROGRAMS, Step

_NEW = "/mnt"
_OPTIONS = {"read": "bind,ro", "bind": "bind", "with all below": "rbind"}
#: Single devices, because `/dev/shm` may contain anything.
_MACHINE: tuple[Step, ...] = (
    ("with all below", "/proc", "/proc"),
    *(("bind", f"/dev/{name}", f"/dev/{name}") for name in DEVICES),
    *(("link", f"/proc/self/fd/{number}", f"/dev/{name}") for number, name in enumerate(("stdin", "stdout", "stderr"))),
    ("link", "/proc/self/fd", "/dev/fd"),
    ("folder", "/dev/shm"),
)
_numbers = itertools.count()


def within(steps: Iterable[Step], argv: Sequence[str], directory: str, table: Path) -> list[str]:
    """A command that runs `argv` in a root built by these steps; `argv` itself if this machine does not support that.

    `directory`: initial folder, created if missing. `table`: file for the list of mounts.
    """
    if not works():
        return list(argv)
    root = _Root()
    for step in (*steps, *_MACHINE):
        root.add(step)
    root.write(table)
    lines = [*root.lines(), f"mount --all --fstab {shlex.quote(str(table))}", f"cd {_NEW}", "pivot_root . ."]
    lines += ["umount -l .", f"mkdir -p {shlex.quote(directory)}", f"cd {shlex.quote(directory)}", 'exec "$@"']
    return [*_unshare(), "/bin/sh", "-c", _with_programs(lines), "sh", *argv]


class _Root:
    """Folders and files created before the mounts, and the mounts."""

    def __init__(self) -> None:
        self._folders, self._files = [f"{_NEW}/tmp"], [f"{_NEW}/etc/hostname"]
        self._links: list[str] = []
        self._mounts: list[str] = []

    def add(self, step: Step) -> None:
        kind, source, at = step[0], step[1], f"{_NEW}{step[-1]}"
        if kind == "link":
            self._links.append(f"ln -s {shlex.quote(source)} {shlex.quote(at)}")
        elif kind == "folder":
            self._folders.append(at)
        else:
            (self._folders if os.path.isdir(source) else self._files).append(at)
            self._mounts.append(_entry(source, at, _OPTIONS[kind]))

    def lines(self) -> list[str]:
        folders = [*self._folders, *map(os.path.dirname, self._files)]
        made = [f"mkdir -p {shlex.join(folders)}", f"chmod 1777 {_NEW}/tmp", f"touch {shlex.join(self._files)}"]
        return ["set -e", "umask 022", f"mount -t tmpfs -o mode=755 none {_NEW}", *made, *self._links]

    def write(self, table: Path) -> None:
        """Write the table atomically, because others may be reading the previous one."""
        written = table.with_name(f"{table.name}-{next(_numbers)}")
        written.write_text("".join(self._mounts))
        written.replace(table)


def _with_programs(lines: Sequence[str]) -> str:
    """Run the steps with our own `PATH`, and restore the container's for its command."""
    *before, last = lines
    return "\n".join([f"own=$PATH; PATH={PROGRAMS}", *before, "PATH=$own; unset own", last])


def _entry(source: str, at: str, options: str) -> str:
    words = (one.replace("\\", "\\134").replace(" ", "\\040") for one in (source, at))
    return " ".join([*words, "none", options, "0 0\n"])


@functools.cache
def works() -> bool:
    """Whether this machine gives a process a mount namespace of its own."""
    command = [*_unshare(), "/bin/sh", "-c", f"mount -t tmpfs none {_NEW} && cd {_NEW} && pivot_root . ."]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _unshare() -> list[str]:
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
