"""Folders and code on storage where other users may write.

Folders are created and checked without following links. Nothing below the mount point (which the config names, and
which may be a link) is trusted: another user may have created a link or a folder at our path. Changes apply to the
opened folder, not to whatever has its name later.

Code is identified by its SHA-256, and unpacked from a copy with that hash. The copy is private to the unpacking
process: a file that is checked and opened again could be replaced in between.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import shlex
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from nni_manager.domain.errors import InvalidInput, PlatformUnavailable, SubmitRejected
from trial_runner.wire import foreign_files
from trial_runner.wire.descriptors import Descriptor
from trial_runner.wire.foreign_files import OpenFolder, opened_folder

#: All users may add entries, and remove only their own.
_STICKY = 0o1777
#: Others can pass through it to known names, but cannot list it.
PASSAGE = 0o711
_PASS = 0o011
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def experiment_folder(experiment_id: str, key: str) -> str:
    """The name of an experiment's folder, two levels. Ids are known and may be chosen, so another user could create the
    folder first; a user who can list the first level may not list the second. `key`: `Host.storage_key`; empty, from an
    earlier version: only the id."""
    return f"{experiment_id}-{key[:8]}/{key[8:]}" if key else experiment_id


def make_root(point: Path, name: str) -> None:
    """Creates the folder of all experiments, or accepts ours, or another user's with the sticky bit. Blocks, like all
    functions here. Raises OSError, whose text is for users."""
    with _made(point, name) as folder:
        status = os.fstat(folder)
        if _is_ours(folder, status):
            _set_mode(folder, status, _STICKY)
        elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            why = "another user's folder, in which every user can replace our files; run `chmod +t` on it"
            raise PermissionError(errno.EPERM, why, str(point / name))


def make_passage(point: Path, above: str, name: str, mode: int) -> None:
    """Creates folders that only this user may write: each one on the way from the existing `above` to `name` below it.
    Permission to pass through an existing one stays: trials of another service of the experiment may use it. Raises
    OSError."""
    for part in name.split("/"):
        above = f"{above}/{part}" if above else part
        _make_own(point, above, mode, _PASS)


def make_open(point: Path, name: str) -> None:
    """Creates a folder that every user can write: the user id that the storage's server sees for a machine or container
    is unknown. Raises OSError."""
    _make_own(point, name, _STICKY)


def _make_own(point: Path, name: str, mode: int, kept: int = 0) -> None:
    """`kept`: bits of an existing folder's mode that stay."""
    with _made(point, name) as folder:
        status = os.fstat(folder)
        if not _is_ours(folder, status):
            raise PermissionError(
                errno.EPERM, "another user's folder at the path of ours; remove it", str(point / name)
            )
        _set_mode(folder, status, mode | (status.st_mode & kept))


@contextmanager
def _made(point: Path, name: str) -> Iterator[int]:
    """A context with a descriptor of the folder `name`; its parents exist."""
    above, _, last = name.rpartition("/")
    try:
        with OpenFolder(os.path.realpath(point)) as whole, opened_folder(whole, above) as parent:
            with suppress(FileExistsError):
                os.mkdir(last, 0o700, dir_fd=parent)
            folder = os.open(last, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            why = "a link or a file at the path of a folder, perhaps created by another user; remove it"
            raise NotADirectoryError(errno.ENOTDIR, why, str(point / name)) from error
        raise type(error)(error.errno, error.strerror, str(point / name)) from error
    with Descriptor(folder):
        yield folder


def _is_ours(folder: int, status: os.stat_result) -> bool:
    """Whether its owner is that of our new files: the storage's server may map us to another user."""
    if status.st_uid == os.geteuid():
        return True
    probe = f".nni-probe-{secrets.token_hex(8)}"
    try:
        os.mkdir(probe, 0o700, dir_fd=folder)
    except OSError:
        return False
    try:
        return os.stat(probe, dir_fd=folder, follow_symlinks=False).st_uid == status.st_uid
    finally:
        os.rmdir(probe, dir_fd=folder)


def _set_mode(folder: int, status: os.stat_result, mode: int) -> None:
    """Sets the mode of a folder, if the storage supports modes."""
    if stat.S_IMODE(status.st_mode) != mode:
        with suppress(OSError):
            os.fchmod(folder, mode)


#: Run by the Python of a trial's machine, without our modules: ARCHIVE FOLDER SHA256.
UNPACK = """\
import hashlib, sys, tarfile, tempfile
archive, folder, wanted = sys.argv[1:]
copy, digest = tempfile.TemporaryFile(), hashlib.sha256()
with open(archive, "rb") as file:
    for piece in iter(lambda: file.read(1048576), b""):
        copy.write(piece)
        digest.update(piece)
if digest.hexdigest() != wanted:
    sys.exit(archive + " is not the one that the manager wrote: its SHA-256 differs")
copy.seek(0)
tarfile.open(fileobj=copy).extractall(folder)
"""


def unpack_command(python: str, archive: str, folder: str, sha256: str) -> str:
    """Shell text that unpacks `archive` into `folder`, or fails if its SHA-256 differs."""
    words = [python, "-I", "-W", "ignore", "-c", UNPACK, archive, folder, sha256]
    return " ".join(map(shlex.quote, words))


#: Folder of a job's processes that do not report; their containers may have other users.
REPLICAS = "replicas"
#: Run by the Python of a trial's machine: PREFIX FOLDER NAME. It creates the folder NAME in an attempt's folder, which
#: every user may write, and fails if another user has created an entry before. PREFIX begins the sentence.
CLAIM = f"""\
import os, sys, tempfile
prefix, folder, made = sys.argv[1:]
try:
    probe = tempfile.mkdtemp(dir=folder)
    ours = os.lstat(folder).st_uid, os.lstat(probe).st_uid
    os.rmdir(probe)
    if not os.path.isdir(os.path.join(folder, made)):
        os.mkdir(os.path.join(folder, made))
    names = [made] if made == "{REPLICAS}" else set(os.listdir(folder)) - {{"{REPLICAS}"}}
    foreign = [name for name in names if os.lstat(os.path.join(folder, name)).st_uid not in ours]
except OSError as error:
    sys.exit(prefix + str(error))
if foreign:
    sys.exit(prefix + os.path.join(folder, foreign[0]) + " belongs to another user and is not used. Remove it")
"""

#: Run by the Python of a trial's machine: FROM TO. Unlike `mv`, it never moves into a folder of another user.
RENAME = "import os, sys; os.rename(sys.argv[1], sys.argv[2])"


def claim_command(python: str, folder: str, made: str, prefix: str = "") -> str:
    """Shell text that creates the folder `made` in an attempt's folder, or fails with a sentence on stderr if another
    user has created an entry there. `python` and `folder`: shell text, quoted."""
    return f"{python} -I -W ignore -c {shlex.quote(CLAIM)} {shlex.quote(prefix)} {folder} {made}"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file of ours, in hex. Blocks. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_sha256(path: Path, sha256: str) -> bool:
    """Whether a regular file with that SHA-256 exists. Blocks."""
    try:
        with open(foreign_files.open_file(str(path.parent), path.name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


T = TypeVar("T")


async def packed(code: Callable[[], Awaitable[Path]]) -> Path:
    """The packed code, for a job about to be submitted. Raises SubmitRejected, PlatformUnavailable.

    `code`: `Host.code`.
    """
    try:
        return await code()
    except InvalidInput as error:
        raise SubmitRejected(str(error)) from error
    except OSError as error:
        raise PlatformUnavailable(f"the code cannot be packed: {error}", refused=True) from error


async def in_thread(work: Callable[[], T], storage: str, point: Path) -> T:
    """Works on storage mounted at `point`, in a thread. Raises PlatformUnavailable: ``STORAGE cannot be used…``."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        why = f"{error.filename or point}: {error.strerror}"
        raise PlatformUnavailable(f"{storage} cannot be used: {why}", refused=True) from error
