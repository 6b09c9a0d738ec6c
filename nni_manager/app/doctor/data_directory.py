"""Checks the data directory: permissions, file system, free space."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nni_manager.app.doctor.finding import CheckFinding, failure, ok, warning
from nni_manager.platform_kit.lock_holder import holders
from nni_manager.store.folder import is_on_network
from nni_manager.store.index import index

_CHECK = "data directory"
_MIB = 2**20
#: Free bytes below which the check fails.
_TOO_LITTLE = 100 * _MIB
#: Free inodes below which the check warns: a trial takes about ten.
_FEW_FILES = 10_000
#: Lock files; a lock held by another user blocks all commands.
_LOCKED = ("start.lock", "daemon.lock", index.FILE, f"{index.FILE}-shm")


def look(path: Path, disk_warning_mib: int) -> Iterator[CheckFinding]:
    place, wrong = _nearest(path), trouble(path)
    if wrong:
        yield failure(_CHECK, wrong, "choose another with --data-dir, or change its owner")
    else:
        exists = place == path
        yield ok(_CHECK, f"{path} can be written" if exists else f"{path} does not exist yet and will be made")
    if not place.is_dir():
        return
    if place == path:
        yield _private(path)
        yield from _locked_by_others(path)
    yield _file_system(place)
    yield _room(place, disk_warning_mib * _MIB)


def trouble(path: Path) -> str:
    """Why a folder cannot be written or made; empty: it can."""
    place = _nearest(path)
    if not place.is_dir():
        return f"{place} is no folder" + ("" if place == path else f", so {path} cannot be made")
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"0" * 4096)
    except OSError as error:
        return f"{place} cannot be written ({error.strerror})"
    return ""


def _private(path: Path) -> CheckFinding:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.getuid():
        return warning(
            "privacy", f"{path} belongs to user {status.st_uid}, not to you ({os.getuid()})", f"chown it: {path}"
        )
    if mode & 0o077:
        sentence = f"others may enter {path} (mode {mode:04o}); experiments keep your environment there"
        return warning("privacy", sentence, f"chmod 0700 {path}; a daemon that starts does so")
    return ok("privacy", f"only you may enter it (mode {mode:04o})")


def _locked_by_others(path: Path) -> Iterator[CheckFinding]:
    """Findings on lock files that other users can open, and so hold for ever."""
    for name in _LOCKED:
        for holder in holders(path / name):
            if holder.user != os.getuid():
                sentence = f"{holder} holds a lock on {path / name}, and nothing can be created meanwhile"
                yield failure("privacy", sentence, f"end that process; chmod 0700 {path}")


def _file_system(place: Path) -> CheckFinding:
    if is_on_network(place):
        sentence = f"{place} lies on a network file system, where SQLite's log does not work between machines"
        return failure("file system", sentence, "choose a local disk with --data-dir; experiments may lie elsewhere")
    return ok("file system", "a local disk, as SQLite needs it")


def _room(place: Path, least: int) -> CheckFinding:
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    sentence = f"{free / 2**30:.1f} GiB are free"
    if free < _TOO_LITTLE:
        return failure("disk", sentence, "make room, or choose another data directory")
    if free < least:
        advice = "make room: results and logs of trials need it; `nnictl experiment prune` removes old experiments"
        return warning("disk", sentence, advice)
    if found.f_files and found.f_favail < _FEW_FILES:
        return warning("disk", f"{sentence}, but only {found.f_favail} more files fit", "remove files: inodes run out")
    return ok("disk", sentence)


def _nearest(path: Path) -> Path:
    """The path itself if it exists, else its closest existing parent, which may be a file."""
    return next(place for place in (path, *path.parents) if os.path.lexists(place))
