"""How a command gets a root of its own, and is process 1 there: by bubblewrap, or by `unshare` where that fails.

A root is a list of steps, each made of words: ("read", from, to) and ("bind", from, to) show a folder or a file of the
machine, ("device", from, to) a device, ("link", text, at) and ("folder", at) make one. `/proc`, `/dev` and `/tmp` are
always there.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

Step = tuple[str, ...]
#: Steps, the command, the folder where it begins, and the capabilities that it has (None: all that can be given) → a
#: command of the machine. Its environment is the container's.
Maker = Callable[[Sequence[Step], Sequence[str], str, Sequence[str] | None], list[str]]
#: What every process may open.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
#: Inside, an ordinary user is root, the only user.
_ORDINARY = ("--unshare-user", "--uid", "0", "--gid", "0")
_BUBBLEWRAP = ("bwrap", "--unshare-pid", "--as-pid-1", "--die-with-parent")
_WORD = {"read": "--ro-bind", "bind": "--bind", "device": "--dev-bind", "link": "--symlink", "folder": "--dir"}
_UNSHARE = ("unshare", "--mount", "--pid")
#: Also what administrators use.
PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@functools.cache
def makers() -> tuple[Maker, ...]:
    """Those that work on this machine, the better one first."""
    steps = [("read", "/usr", "/usr"), *libraries()]
    return tuple(maker for maker in (by_bubblewrap, by_unshare) if _works(maker(steps, ["/usr/bin/true"], "/", None)))


def _works(command: list[str]) -> bool:
    with suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False, env={"PATH": PROGRAMS}).returncode == 0
    return False


def libraries() -> list[Step]:
    """What `/usr` needs beside it: links on most systems, folders on some."""
    found = [Path("/", name) for name in ("bin", "sbin", "lib", "lib32", "lib64")]
    links: list[Step] = [("link", os.readlink(path), str(path)) for path in found if path.is_symlink()]
    return links + [("read", str(path), str(path)) for path in found if path.is_dir() and not path.is_symlink()]


def by_bubblewrap(
    steps: Sequence[Step], command: Sequence[str], directory: str, capabilities: Sequence[str] | None
) -> list[str]:
    """A `Maker`. To mount is root's alone: the file systems of an ordinary user's container are not the container's."""
    words = [word for kind, *rest in steps for word in (_WORD[kind], *rest)]
    user = () if os.geteuid() == 0 else _ORDINARY
    always = ("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--dir", "/tmp")
    rights = [] if capabilities is None else ["--cap-drop", "ALL"]
    rights += [word for name in capabilities or () for word in ("--cap-add", f"CAP_{name.upper()}")]
    return [*_BUBBLEWRAP, *user, *rights, *always, *words, "--chdir", directory, "--", *command]


def by_unshare(
    steps: Sequence[Step], command: Sequence[str], directory: str, capabilities: Sequence[str] | None
) -> list[str]:
    """A `Maker`: the same root, made by a shell that becomes the command."""
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    lines = ["set -e", "cd /", "umask 022", "mount -t tmpfs -o mode=755 none /mnt", *_always(), *map(_line, steps)]
    # the old root is left behind: nothing of it can be reached by any path
    lines += ["cd /mnt", "pivot_root . .", "umount -l .", f"cd {shlex.quote(directory)}"]
    lines.append(f"exec {shlex.join([*_limits(capabilities), *command])}")
    # the first child is process 1; by `--fork` some releases forget by which signal it ended
    return [*_UNSHARE, *user, "/bin/sh", "-c", f"/bin/sh -c {shlex.quote(chr(10).join(lines))}; exit $?"]


def _limits(capabilities: Sequence[str] | None) -> list[str]:
    if capabilities is None:
        return []
    return ["setpriv", f"--bounding-set=-all,{','.join(f'+{name}' for name in capabilities)}", "--inh-caps=-all"]


def _always() -> list[str]:
    lines = [
        "mkdir -p /mnt/proc /mnt/dev/shm /mnt/tmp",
        "chmod 1777 /mnt/tmp /mnt/dev/shm",
        "mount -t proc none /mnt/proc",
    ]
    lines += [f"touch /mnt/dev/{name} && mount --bind /dev/{name} /mnt/dev/{name}" for name in DEVICES]
    return [*lines, "ln -s /proc/self/fd /mnt/dev/fd", "ln -s fd/1 /mnt/dev/stdout", "ln -s fd/2 /mnt/dev/stderr"]


def _line(step: Step) -> str:
    kind, at = step[0], shlex.quote(f"/mnt{step[-1]}")
    if kind == "folder":
        return f"mkdir -p {at}"
    parent, source = shlex.quote(os.path.dirname(f"/mnt{step[-1]}")), shlex.quote(step[1])
    if kind == "link":
        return f"mkdir -p {parent}; ln -s {source} {at}"
    place = f"mkdir -p {at}" if os.path.isdir(step[1]) else f"mkdir -p {parent}; test -e {at} || touch {at}"
    again = f"; mount -o remount,bind,ro,nosuid,nodev {at}" if kind == "read" else ""
    return f"{place}; mount --bind {source} {at}{again}"
