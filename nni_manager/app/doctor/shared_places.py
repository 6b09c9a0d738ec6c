"""Checks places that other users of this machine or of its storage can reach: are files of ours open to them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from nni_manager.app.doctor.finding import CheckFinding, failure, ok, warning
from nni_manager.config import settings as configured
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.experiment import ExperimentSpec
from nni_manager.store.folder import Folder

_PRIVACY, _UMASK, _SOCKETS, _STORAGE = "privacy", "umask", "sockets", "shared storage"
#: Folders on storage that contain all experiments.
_ROOTS = ("nni", "nni-experiments")
#: Most names listed in a sentence.
_MOST_NAMES = 5
_OTHERS_READ, _OTHERS_WRITE = 0o044, 0o022


def look(data_dir: Path, environment: Mapping[str, str]) -> Iterator[CheckFinding]:
    yield _umask()
    yield _sockets(environment)
    yield from _settings_file(data_dir / configured.FILE)
    yield from _folders(data_dir)


def _umask() -> CheckFinding:
    """The finding on the umask, which decides the modes of files that experiments and trials write."""
    umask = os.umask(0o077)
    os.umask(umask)
    if umask & _OTHERS_WRITE != _OTHERS_WRITE:
        sentence = f"your umask is {umask:03o}: what trials write may be changed by other users, where they may enter"
        return warning(_UMASK, sentence, "umask 022, or 077, where the daemon and trials are started")
    return ok(_UMASK, f"what trials write may be changed by you alone (umask {umask:03o})")


def _sockets(environment: Mapping[str, str]) -> CheckFinding:
    try:
        folder = configured.runtime_directory(environment)
    except InvalidInput as error:
        sentence, _, advice = str(error).partition("; ")
        return failure(_SOCKETS, sentence, advice)
    if not environment.get("XDG_RUNTIME_DIR"):
        advice = "set XDG_RUNTIME_DIR to a folder of yours that is not emptied while a daemon runs"
        return warning(
            _SOCKETS, f"sockets lie in {folder}, where another user may have been first after a reboot", advice
        )
    return ok(_SOCKETS, f"sockets lie in {folder}, which is yours alone")


def _settings_file(path: Path) -> Iterator[CheckFinding]:
    try:
        status = path.stat()
        has_token = "token" in path.read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return
    if has_token and status.st_mode & _OTHERS_READ:
        yield failure(_PRIVACY, f"others may read {path}, which holds a token", f"chmod 0600 {path}, and take another")
    if status.st_mode & _OTHERS_WRITE:
        yield failure(_PRIVACY, f"others may write {path}, by which the daemon goes", f"chmod 0600 {path}")


def _folders(data_dir: Path) -> Iterator[CheckFinding]:
    """Findings on experiments' folders, without those that this user cannot read."""
    try:
        folders = [Folder(path) for path in sorted(data_dir.iterdir()) if (path / "db").is_dir()]
    except OSError:
        return
    open_ones = [one.path.name for one in folders if one.path.stat().st_mode & (_OTHERS_READ | _OTHERS_WRITE)]
    if open_ones:
        sentence = f"others may read or write the folders of {_listed(open_ones)}"
        yield warning(_PRIVACY, sentence, f"chmod 0700 {data_dir}/ID")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


# Of an experiment file


def look_at_file(path: Path, spec: ExperimentSpec, secrets: Mapping[str, str]) -> Iterator[CheckFinding]:
    """`secrets`: reference → value, of the secrets that the file refers to or contains."""
    written = sorted(one.removeprefix("stored:") for one in secrets if one.startswith("stored:"))
    mode = path.stat().st_mode
    if written and mode & _OTHERS_READ:
        sentence = f"others may read {path}, which holds {', '.join(written)}"
        yield warning(_PRIVACY, sentence, f"chmod 0600 {path}, or write ${{VARIABLE}} or file:path in their place")
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
    """Whether other users may replace the content of a folder."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & _OTHERS_WRITE) and not mode & stat.S_ISVTX


def _storage(point: Path) -> Iterator[CheckFinding]:
    for folder in (point, *(point / name for name in _ROOTS)):
        if _may_write(folder):
            sentence = f"every user may replace what lies in {folder}: code and results of experiments lie below it"
            yield warning(_STORAGE, sentence, f"chmod +t {folder}, or let your group alone write there")
