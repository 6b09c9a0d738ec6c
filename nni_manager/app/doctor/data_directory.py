"""Checks the data directory (permissions, file system, free space) and other places.

The other places are those where users of this machine, or of its storage, might access our files.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from nni_manager.app.doctor.finding import CheckFinding, failure, ok, told, warning
from nni_manager.client.data_directory import LOCK
from nni_manager.config import settings as configured
from nni_manager.domain.errors import InvalidInput, SchemaRefused
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.platform_kit.lock_holder import holders
from nni_manager.store import migrate
from nni_manager.store.folder import Folder, is_on_network
from nni_manager.store.index import index
from trial_runner.wire import full_disks

_CHECK = "data directory"
_MIB = 2**20
#: Free bytes below which the check fails.
_TOO_LITTLE = 100 * _MIB
#: Free inodes below which the check warns: a trial takes about ten.
_FEW_FILES = 10_000
#: Lock files; a lock held by another user blocks all commands.
_LOCKED = ("start.lock", LOCK, index.FILE, f"{index.FILE}-shm")


def look(path: Path, disk_warning_mib: int) -> Iterator[CheckFinding]:
    place, wrong = _nearest(path), trouble(path)
    if wrong:
        yield failure(_CHECK, wrong, "choose another folder with --data-dir, or change its owner")
    else:
        exists = place == path
        yield ok(_CHECK, f"{path} is writable" if exists else f"{path} does not exist yet and will be created")
    if not place.is_dir():
        return
    if place == path:
        yield _private(path)
        yield from _locked_by_others(path)
        yield from _written_by_newer(path)
    yield _file_system(place)
    yield _room(place, disk_warning_mib * _MIB)


def trouble(path: Path) -> str:
    """Why a folder cannot be written or created; empty if it can."""
    place = _nearest(path)
    if not place.is_dir():
        return f"{place} is not a folder" + ("" if place == path else f", so {path} cannot be created")
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"0" * 4096)
    except OSError as error:
        return f"{place} cannot be written ({full_disks.reason(error, place)})"
    return ""


def _private(path: Path) -> CheckFinding:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.getuid():
        return warning(
            "privacy", f"{path} belongs to user {status.st_uid}, not to you ({os.getuid()})", f"chown it: {path}"
        )
    if mode & 0o077:
        sentence = f"others may enter {path} (mode {mode:04o}), which holds the environment of experiments"
        return warning("privacy", sentence, f"chmod 0700 {path}; a starting daemon does so, too")
    return ok("privacy", f"only you may enter it (mode {mode:04o})")


def _locked_by_others(path: Path) -> Iterator[CheckFinding]:
    """Findings on lock files that other users can open, and so hold forever."""
    for name in _LOCKED:
        for holder in holders(path / name):
            if holder.user != os.getuid():
                sentence = f"{holder} holds a lock on {path / name}, which blocks new experiments"
                yield failure("privacy", sentence, f"end that process; chmod 0700 {path}")


def _written_by_newer(path: Path) -> Iterator[CheckFinding]:
    """A failure if a newer version wrote the index: a daemon of this version cannot start there."""
    try:
        migrate.refuse_newer(path / index.FILE, "index")
    except SchemaRefused as error:
        sentence, _, advice = str(error).partition(": ")
        yield failure("index", sentence, f"{advice}, or choose another data directory with --data-dir")


def _file_system(place: Path) -> CheckFinding:
    if is_on_network(place):
        sentence = f"{place} is on a network file system, where SQLite's log does not work between machines"
        return failure("file system", sentence, "choose a local disk with --data-dir; experiments may be elsewhere")
    return ok("file system", "a local disk, as SQLite requires")


def _room(place: Path, least: int) -> CheckFinding:
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    sentence = f"{free / 2**30:.1f} GiB are free"
    if full := full_disks.no_inodes(str(place)):
        return failure("disk", full, "remove files, or choose another data directory")
    if free < _TOO_LITTLE:
        return failure("disk", sentence, "free disk space, or choose another data directory")
    if free < least:
        advice = "free disk space for results and logs of trials; `nnictl experiment prune` removes old experiments"
        return warning("disk", sentence, advice)
    if found.f_files and found.f_favail < _FEW_FILES:
        return warning("disk", f"{sentence}, but only {found.f_favail} more files fit", "remove files to free inodes")
    return ok("disk", sentence)


def _nearest(path: Path) -> Path:
    """The path itself if it exists, else its closest existing parent, which may be a file."""
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


_PRIVACY, _UMASK, _SOCKETS, _STORAGE = "privacy", "umask", "sockets", "shared storage"
#: Folders on storage that contain all experiments.
_ROOTS = ("nni", "nni-experiments")
#: Most names listed in a sentence.
_MOST_NAMES = 5
_OTHERS_READ, _OTHERS_WRITE = 0o044, 0o022


def look_at_shared_places(data_dir: Path, environment: Mapping[str, str]) -> Iterator[CheckFinding]:
    yield _umask()
    yield _sockets(environment)
    yield from _settings_file(data_dir / configured.FILE)
    yield from _folders(data_dir)


def _umask() -> CheckFinding:
    """The finding on the umask, which sets the modes of files of experiments and trials."""
    umask = os.umask(0o077)
    os.umask(umask)
    if umask & _OTHERS_WRITE != _OTHERS_WRITE:
        sentence = f"your umask is {umask:03o}: other users may change files of trials in folders that they may enter"
        return warning(_UMASK, sentence, "set umask 022 or 077 where the daemon and trials are started")
    return ok(_UMASK, f"only you may change files of trials (umask {umask:03o})")


def _sockets(environment: Mapping[str, str]) -> CheckFinding:
    try:
        folder = configured.runtime_directory(environment)
    except InvalidInput as error:
        return failure(_SOCKETS, *told(error))
    if not environment.get("XDG_RUNTIME_DIR"):
        advice = "set XDG_RUNTIME_DIR to your own folder that is not emptied while a daemon runs"
        return warning(_SOCKETS, f"sockets are in {folder}, which another user may create first after a reboot", advice)
    return ok(_SOCKETS, f"sockets are in {folder}, which only you may enter")


def _settings_file(path: Path) -> Iterator[CheckFinding]:
    try:
        status = path.stat()
        has_token = "token" in path.read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return
    if has_token and status.st_mode & _OTHERS_READ:
        yield failure(
            _PRIVACY, f"others may read {path}, which holds a token", f"chmod 0600 {path}, and replace the token"
        )
    if status.st_mode & _OTHERS_WRITE:
        yield failure(_PRIVACY, f"others may write {path}, which the daemon reads", f"chmod 0600 {path}")


def _folders(data_dir: Path) -> Iterator[CheckFinding]:
    """Findings on experiments' folders, without those that this user cannot read."""
    try:
        folders = [Folder(path) for path in sorted(data_dir.iterdir()) if (path / "db").is_dir()]
    except OSError:
        return
    open_ones = [one.path.name for one in folders if one.path.stat().st_mode & (_OTHERS_READ | _OTHERS_WRITE)]
    if open_ones:
        more = f" and {len(open_ones) - _MOST_NAMES} more" if len(open_ones) > _MOST_NAMES else ""
        sentence = f"others may read or write the folders of {', '.join(open_ones[:_MOST_NAMES])}{more}"
        yield warning(_PRIVACY, sentence, f"chmod 0700 {data_dir}/ID")


# Of an experiment file


def look_at_file(path: Path, spec: ExperimentSpec, secrets: Mapping[str, str]) -> Iterator[CheckFinding]:
    """The findings on a file. `secrets`: reference → value, of the secrets in the file."""
    written = sorted(one.removeprefix("stored:") for one in secrets if one.startswith("stored:"))
    mode = path.stat().st_mode
    if written and mode & _OTHERS_READ:
        sentence = f"others may read {path}, which holds {', '.join(written)}"
        yield warning(_PRIVACY, sentence, f"chmod 0600 {path}, or replace them by ${{VARIABLE}} or file:path")
    if mode & _OTHERS_WRITE:
        sentence = f"others may write {path}, whose command runs as you"
        yield warning(_PRIVACY, sentence, f"chmod go-w {path}")
    for name in (one.removeprefix("file:") for one in secrets if one.startswith("file:")):
        if Path(name).stat().st_mode & _OTHERS_READ:
            yield warning(_PRIVACY, f"others may read {name}, which holds a secret", f"chmod 0600 {name}")
    if _may_write(Path(spec.trial_code_directory)):
        sentence = f"others may write {spec.trial_code_directory}, whose code runs as you"
        yield warning(_PRIVACY, sentence, f"chmod go-w {spec.trial_code_directory}")
    for point in sorted(set(_mount_points(spec))):
        yield from _storage(point)


def _mount_points(spec: ExperimentSpec) -> Iterator[Path]:
    """The mount points on this machine of storage that is shared with trials, from all sections."""
    sections = [one.settings for one in spec.platforms]
    storages = [spec.shared_storage, *sections, *(one.get("storage") for one in sections)]
    for storage in storages:
        if isinstance(storage, Mapping):
            claim = storage.get("path") if storage.get("storageType") == "pvc" else None
            found = storage.get("localStorageMountPoint") or storage.get("localMountPoint") or claim
            yield from [Path(str(found))] if found else []


def _may_write(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & _OTHERS_WRITE) and not mode & stat.S_ISVTX


def _storage(point: Path) -> Iterator[CheckFinding]:
    for folder in (point, *(point / name for name in _ROOTS)):
        if _may_write(folder):
            sentence = f"every user may replace files in {folder}, which holds code and results of experiments"
            yield warning(_STORAGE, sentence, f"chmod +t {folder}, or let only your group write there")
