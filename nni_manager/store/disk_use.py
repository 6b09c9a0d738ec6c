"""How much room an experiment takes on this machine's disks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.errors import StoreCorrupt
from nni_manager.store.folder import Folder

_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Bytes on disk, as `du` counts them, and files."""

    database: int
    trials: int
    checkpoints: int
    #: Copies and archives of code.
    code: int
    logs: int
    #: What else is in the folder.
    other: int
    files: int

    @property
    def total(self) -> int:
        return self.database + self.trials + self.checkpoints + self.code + self.logs + self.other


#: Entry of the folder → part of the use.
_PARTS = {
    "db": "database",
    "trials": "trials",
    "environments": "trials",
    "checkpoint": "checkpoints",
    "code": "code",
    "log": "logs",
}


def measure(folder: Folder) -> DiskUse:
    """Looks at every file: blocks for a second where there are a hundred thousand. What cannot be read counts nothing;
    links are not followed. Never raises."""
    found = dict.fromkeys([*_PARTS.values(), "other"], 0)
    seen: set[tuple[int, int]] = set()
    for name, status in _files(folder):
        if status.st_nlink > 1 and (status.st_dev, status.st_ino) in seen:
            continue  # a hard link takes no room of its own
        seen.add((status.st_dev, status.st_ino))
        found[_PARTS.get(name, "other")] += status.st_blocks * _BLOCK
    return DiskUse(**found, files=len(seen))


def _files(folder: Folder) -> Iterator[tuple[str, os.stat_result]]:
    """(entry of the experiment's folder, status) of each file below it, and beside a database elsewhere."""
    for entry in _entries(folder.path):
        yield from ((entry.name, status) for status in _below(entry))
    try:
        elsewhere = folder.database.parent
    except (OSError, StoreCorrupt):
        return
    if elsewhere.parent != folder.path:
        for entry in _entries(elsewhere):
            yield from (("db", status) for status in _below(entry))


def _below(entry: os.DirEntry[str]) -> Iterator[os.stat_result]:
    waiting = [entry]
    while waiting:
        one = waiting.pop()
        try:
            if one.is_dir(follow_symlinks=False):
                waiting += _entries(one.path)
            else:
                yield one.stat(follow_symlinks=False)
        except OSError:  # removed meanwhile
            continue


def _entries(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []
