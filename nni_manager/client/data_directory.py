"""The data directory and its lock files, private to their owner, because others could hold an open lock file."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from nni_manager.domain.environment import SETTINGS_PREFIX
from nni_manager.domain.errors import InvalidInput
from nni_manager.domain.text import require_text
from nni_manager.platform_kit.owner import is_ours
from trial_runner.wire import foreign_files
from trial_runner.wire.descriptors import try_lock


def make_data_directory(path: Path) -> None:
    """Create the data directory if it is missing, and make it private (NNI's are not).

    A folder with other files, or of another user, keeps its mode. Raises OSError, and InvalidInput for a path that
    databases cannot store.
    """
    require_text(f"the data directory {str(path)!a}", str(path))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tighten(path)


def _tighten(path: Path) -> None:
    status = path.stat()
    is_shared = status.st_mode & stat.S_ISVTX or path in (Path.home(), Path("/"))
    if status.st_uid == os.geteuid() and status.st_mode & 0o077 and not is_shared:
        with suppress(OSError):  # the file system has no modes
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


#: Variable with the effect of ``--insecure-data-dir`` if it is not empty.
INSECURE_VARIABLE = f"{SETTINGS_PREFIX}INSECURE_DATA_DIR"
#: Files and folders of the data directory that control the daemon.
_OBEYED = (
    *("settings.yml", "algorithms.json", "identity", "keeper", "control.json"),
    *(f"index.sqlite{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
)


def require_trusted(path: Path) -> None:
    """Refuse a data directory that another user owns or could change.

    Its settings contain tokens, and its files name commands that run as this user. Root's folders are accepted; a
    folder of this user is made private. Raises InvalidInput, unless `INSECURE_VARIABLE` is set.
    """
    if os.environ.get(INSECURE_VARIABLE):
        return
    with suppress(FileNotFoundError, NotADirectoryError):  # it will be created
        _tighten(path)
        status = path.stat()
        if not _is_trusted(path, status.st_uid):
            raise InvalidInput(_advice(f"the data directory {path} belongs to {_user(status.st_uid)}"))
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise InvalidInput(_advice(f"every user can change the data directory {path}, and its mode cannot be set"))
        for name in _OBEYED:
            _require_trusted_file(path, path / name)


def _require_trusted_file(directory: Path, path: Path) -> None:
    """Check the owner of a file; for a link, the owners of link and target. Raises InvalidInput."""
    for follows in (False, True):
        try:
            owner = path.stat(follow_symlinks=follows).st_uid
        except OSError:  # it is missing, or unreadable, which is reported on reading
            return
        if not _is_trusted(directory, owner):
            raise InvalidInput(_advice(f"{path} belongs to {_user(owner)}, whose commands it could run as you"))


def _is_trusted(directory: Path, owner: int) -> bool:
    return owner == 0 or is_ours(directory, owner)


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"


def _advice(sentence: str) -> str:
    return f"{sentence}; change its owner, choose another data directory, or give --insecure-data-dir"


def open_lock(path: Path) -> BinaryIO:
    """A lock file, created if missing, that no other user can open or hold. Raises OSError."""
    lock = open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    with suppress(OSError):
        os.fchmod(lock.fileno(), 0o600)  # another user may have created it
    return lock


#: In the data directory, held by the daemon that owns it.
LOCK = "daemon.lock"


def is_taken(data_directory: Path) -> bool:
    """Whether a daemon holds the lock of the data directory."""
    try:
        with open(data_directory / LOCK, "rb") as lock:
            return not try_lock(lock.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


#: In the data directory.
SERVICE_FILE = "service.json"


def note_service(data_directory: Path, address: str, words: Sequence[str]) -> None:
    """Store the address of an open service and the command line that reopens it, also for after a kill.

    Raises OSError.
    """
    entry = {"address": address, "command": shlex.join(words)}
    foreign_files.write_whole(os.path.realpath(data_directory), SERVICE_FILE, json.dumps(entry).encode())


def forget_service(data_directory: Path) -> None:
    """Remove the note, because the service was closed intentionally."""
    with suppress(OSError):
        (data_directory / SERVICE_FILE).unlink(missing_ok=True)


def lost_service(data_directory: Path) -> str:
    """The message about a killed daemon's service, or empty."""
    try:
        noted = json.loads((data_directory / SERVICE_FILE).read_text(encoding="utf-8"))
        address, command = str(noted["address"]), str(noted["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"the service at {address} is gone, because its daemon was killed; `{command}` opens it again"
