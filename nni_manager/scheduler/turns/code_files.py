"""The files of a code directory that count as code, and their changes. Blocks: called in a thread.

Programs write into the folder that they run in. So only files of the first check are compared: source files and
configuration, by their suffixes, and files in the command; `.nniignore` applies. After a change of one of these, new
source files are compared as well.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from nni_manager.store.experiment.code_states import CodeFile, Files
from trial_runner.wire import foreign_files

if TYPE_CHECKING:
    from nni_manager.code_archive.ignore import IgnoreFiles

#: Maximum number of compared files, and maximum size of each in bytes.
MOST_FILES, MOST_BYTES = 2000, 2**20
#: Maximum number of names to read while searching them.
_MOST_NAMES = 20_000
_SOURCE = frozenset(
    (
        *(".py", ".pyi", ".pyx", ".ipynb", ".sh", ".bash", ".zsh", ".fish", ".pl", ".rb", ".lua", ".r", ".jl", ".m"),
        *(".js", ".mjs", ".cjs", ".ts", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh", ".f90"),
        *(".java", ".kt", ".scala", ".go", ".rs", ".cs", ".swift", ".sql"),
    )
)
#: Programs write such files, too.
_SETTINGS = frozenset((".yaml", ".yml", ".toml", ".json", ".ini", ".cfg", ".conf", ".gin"))
#: Folders without the user's own code.
_LEFT_OUT = frozenset(("__pycache__", "node_modules", "site-packages"))
#: Nanoseconds after a write during which an editor, or git, may still write the file.
_SETTLES_NS = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the trials of a service run in place."""

    directory: str
    #: Their command; a file in it is compared, with any suffix.
    command: str
    #: A folder to skip: the one of experiments may be in it.
    leave_out: str


class Change(NamedTuple):
    """A file whose content changed."""

    #: Time of its last write, in nanoseconds; 0: the file is missing.
    mtime_ns: int
    #: Time of the change, in milliseconds since the epoch; 0: unknown.
    at_ms: int
    #: It may still be written: it is missing, or was written a moment ago.
    is_fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The known state of known files."""

    files: Files
    changed: Mapping[str, Change]


def may_be_written_by_trials(path: str) -> bool:
    """Whether programs write such files as well as people."""
    return os.path.splitext(path)[1].lower() in _SETTINGS


def first_look(place: Place) -> dict[str, CodeFile]:
    """The files that count as code now."""
    found: dict[str, CodeFile] = {}
    for path in _code_paths(place):
        if len(found) >= MOST_FILES:
            break
        if (status := _status(place.directory, path)) is not None and status.st_size <= MOST_BYTES:
            found[path] = _read(place.directory, path, status)
    return found


def look_again(directory: str, known: Files) -> Look:
    """Compares the known files by size and time, and by content if one of these differs."""
    files, changed, now_ns = dict(known), {}, time.time_ns()
    for path, before in known.items():
        status = _status(directory, path)
        if status is not None and (status.st_size, status.st_mtime_ns) == before[:2]:
            continue
        file = CodeFile(0, 0, "") if status is None else _read(directory, path, status)
        files[path] = file
        if file.digest != before.digest:
            at_ns = _folder_ns(directory, path) if status is None else status.st_ctime_ns
            is_fresh = status is None or now_ns - status.st_mtime_ns < _SETTLES_NS
            changed[path] = Change(file.mtime_ns, at_ns // 1_000_000, is_fresh)
    return Look(files=files, changed=changed)


def _code_paths(place: Place) -> Iterator[str]:
    """Paths of candidates, those of upper folders first."""
    named = {os.path.normpath(word) for word in _words(place.command)}
    folders: list[tuple[str, IgnoreFiles]] = [("", ())]
    looked_at = 0
    for folder, above in folders:  # it grows meanwhile
        entries = _entries(os.path.join(place.directory, folder))
        looked_at += len(entries)
        if looked_at > _MOST_NAMES:
            return
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names:
            continue
        ignore = _ignore_files(place.directory, folder, above) if ".nniignore" in names else above
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if entry.is_symlink() or _is_left_out(path, ignore, is_folder=entry.is_dir(follow_symlinks=False)):
                continue
            if entry.is_dir(follow_symlinks=False):
                is_ours = entry.name in _LEFT_OUT or entry.name.startswith(".") or entry.path == place.leave_out
                folders += [] if is_ours else [(path, ignore)]
            elif path in named or os.path.splitext(entry.name)[1].lower() in _SOURCE | _SETTINGS:
                yield path


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The content of a folder, by name, within the limit."""
    try:
        with os.scandir(folder) as found:
            return sorted(islice(found, _MOST_NAMES), key=lambda entry: entry.name)
    except OSError:
        return []


def _ignore_files(directory: str, folder: str, above: IgnoreFiles) -> IgnoreFiles:
    from nni_manager.code_archive.ignore import IGNORE_FILE, read_ignore_file  # most folders have none

    try:
        rules = foreign_files.read(os.path.join(directory, folder), IGNORE_FILE, 0, MOST_BYTES)
    except OSError:
        return above
    return (read_ignore_file(folder, rules), *above)


def _is_left_out(path: str, ignore: IgnoreFiles, *, is_folder: bool) -> bool:
    if not ignore:
        return False
    from nni_manager.code_archive.ignore import is_ignored

    return is_ignored(path, ignore, is_folder=is_folder)


def _status(directory: str, path: str) -> os.stat_result | None:
    """None: it is not a regular file, or does not exist."""
    try:
        found = os.lstat(os.path.join(directory, path))
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _folder_ns(directory: str, path: str) -> int:
    """When names in the file's folder changed, in nanoseconds since the epoch; 0: unknown."""
    try:
        return os.stat(os.path.dirname(os.path.join(directory, path))).st_mtime_ns
    except OSError:
        return 0


def _read(directory: str, path: str, status: os.stat_result) -> CodeFile:
    try:
        content = foreign_files.read(directory, path, 0, MOST_BYTES)
    except OSError:
        return CodeFile(0, 0, "")
    digest = hashlib.sha256(b"%d " % status.st_size + content).hexdigest()[:24]
    return CodeFile(status.st_size, status.st_mtime_ns, digest)
