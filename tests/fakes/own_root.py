"""Run a command as process 1 in its own root: with bubblewrap, or with `unshare` if that fails.

A root is a list of steps: ("read", from, to) and ("bind", from, to) mount a local folder or file, ("device", from, to)
mounts a device, ("link", text, at) and ("folder", at) create one. `/proc`, `/dev` and `/tmp` always exist.
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
#: (steps, command, initial folder, capabilities) → a local command. Its environment is the container's. Capabilities
#: None: all available ones.
Maker = Callable[[Sequence[Step], Sequence[str], str, Sequence[str] | None], list[str]]
#: Devices of every container.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
#: Maps an ordinary user to root, the only user inside.
_ORDINARY = ("--unshare-user", "--uid", "0", "--gid", "0")
_BUBBLEWRAP = ("bwrap", "--unshare-pid", "--as-pid-1", "--die-with-parent")
_WORD = {"read": "--ro-bind", "bind": "--bind", "device": "--dev-bind", "link": "--symlink", "folder": "--dir"}
_UNSHARE = ("unshare", "--mount", "--pid")
#: Includes folders of administrators' programs.
PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@functools.cache
def makers() -> tuple[Maker, ...]:
    """The working makers on this machine, best first."""
    steps = [("read", "/usr", "/usr"), *libraries()]
    return tuple(maker for maker in (by_bubblewrap, by_unshare) if _works(maker(steps, ["/usr/bin/true"], "/", None)))


def _works(command: list[str]) -> bool:
    with suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False, env={"PATH": PROGRAMS}).returncode == 0
    return False


def libraries() -> list[Step]:
    """Entries next to `/usr`: links on most systems, folders on some."""
    found = [Path("/", name) for name in ("bin", "sbin", "lib", "lib32", "lib64")]
    links: list[Step] = [("link", os.readlink(path), str(path)) for path in found if path.is_symlink()]
    return links + [("read", str(path), str(path)) for path in found if path.is_dir() and not path.is_symlink()]


def by_bubblewrap(
    steps: Sequence[Step], command: Sequence[str], directory: str, capabilities: Sequence[str] | None
) -> list[str]:
    """A `Maker`. Only root's containers can mount: an ordinary user's container does not own its file systems."""
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
    # detach the old root, so that no path reaches it
    lines += ["cd /mnt", "pivot_root . .", "umount -l .", f"cd {shlex.quote(directory)}"]
    lines.append(f"exec {shlex.join([*_limits(capabilities), *command])}")
    # the first child is process 1; with `--fork` some releases lose its termination signal
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
