"""Folders of the manager's machine that a pod does not have: in its containers nothing lies in them.

A container's process has a mount namespace of its own, where an empty file system covers each of them; it keeps its
process id, so that signals and exit codes are what they were.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

_COVER = 'while [ "$1" != -- ]; do mount -t tmpfs -o ro none "$1" || exit 125; shift; done; shift; exec "$@"'


def covered(folders: Iterable[Path], argv: Sequence[str]) -> list[str]:
    """A command that runs `argv` where these folders are empty; `argv` itself where this machine cannot do that."""
    there = [str(folder) for folder in folders if folder.is_dir()]
    return [*_unshare(), "/bin/sh", "-c", _COVER, "sh", *there, "--", *argv] if there and works() else list(argv)


@functools.cache
def works() -> bool:
    """Whether this machine gives a process a mount namespace of its own."""
    command = [*_unshare(), "/bin/sh", "-c", "mount -t tmpfs -o ro none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _unshare() -> list[str]:
    return ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
