"""The folder of an attempt: created and filled before its job starts, read on request. No path leads out of it."""

import os
import stat
from contextlib import suppress
from typing import Any, Callable, Dict

from trial_runner import protocol
from trial_runner.keeper.jobs.undo import Undo
from trial_runner.keeper.serving.requests import Refusal, system_refusal
from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import NotRegular, OpenFolder

#: Maximum bytes of one answer, before base64.
_MAX_READ = 4 * 1024 * 1024
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def make(folder: str, undo: Undo) -> None:
    """Creates a missing folder; `undo` removes it again. Raises OSError."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if os.path.isdir(folder):
            return
        raise
    except FileNotFoundError:
        make(os.path.dirname(folder), undo)
        os.mkdir(folder, 0o700)
    undo.add(_quietly, os.rmdir, folder)


def fill(folder: OpenFolder, files: Dict[str, str], undo: Undo) -> None:
    """Creates the outbox folder and the files. Raises OSError, and Refusal for a name that leads out."""
    _make_below(folder, protocol.OUTBOX_FOLDER, undo)
    for name, text in files.items():
        parent = os.path.dirname(check_relative(name))
        if parent:
            _make_below(folder, parent, undo)
        foreign_files.write_whole(folder, name, text.encode("utf-8", "surrogateescape"))
        undo.add(_quietly, os.unlink, folder.path, name)


def open_output(folder: OpenFolder, name: str, undo: Undo) -> int:
    """A descriptor that appends to `stdout` or `stderr`. Raises OSError."""
    try:
        descriptor = foreign_files.open_file(folder, name, _APPENDING)
    except NotRegular:  # left by an earlier job in the same place
        foreign_files.remove(folder, name)
        descriptor = foreign_files.open_file(folder, name, _APPENDING)
    os.set_blocking(descriptor, True)  # the command inherits it
    if os.fstat(descriptor).st_size == 0:
        undo.add(_quietly, os.unlink, folder.path, name)
    return descriptor


def mark_begun(stdout: int, folder: OpenFolder, undo: Undo) -> None:
    """Marks the folder of a job that is about to start, for a keeper without a state file of it.

    The mark is the sticky bit of `stdout`, which has no meaning for files. `stdout`: its descriptor.
    """
    with suppress(OSError):  # a file system without modes
        os.fchmod(stdout, stat.S_IMODE(os.fstat(stdout).st_mode) | stat.S_ISVTX)
    undo.add(mark_forgotten, folder.path)


def mark_forgotten(path: str) -> None:
    """Removes the mark of `mark_begun`."""
    file = os.path.join(path, protocol.STDOUT_FILE)
    with suppress(OSError):
        mode = os.lstat(file).st_mode
        if stat.S_ISREG(mode) and mode & stat.S_ISVTX:
            os.chmod(file, stat.S_IMODE(mode) & ~stat.S_ISVTX)


def has_begun(path: str) -> bool:
    """Whether a job was started in the folder, and not forgotten."""
    with suppress(OSError):
        mode = os.lstat(os.path.join(path, protocol.STDOUT_FILE)).st_mode
        return stat.S_ISREG(mode) and bool(mode & stat.S_ISVTX)
    return False


def check_relative(name: str) -> str:
    """The name, if valid. Raises Refusal for an absolute or empty one, or one that leads out."""
    if not name or "\0" in name or os.path.isabs(name) or ".." in name.split("/") or name.endswith("/"):
        raise Refusal(
            protocol.REJECTED,
            "The file name {!r} is not a path inside the attempt's folder: use a relative one.".format(name),
        )
    return name


def read(folder: str, name: str, offset: int, limit: int) -> Dict[str, Any]:
    """Part of a file: `data` (at most `limit` bytes from `offset`, a negative one from the end) and its `size`.

    Raises Refusal.
    """
    try:
        descriptor = foreign_files.open_file(folder, check_relative(name))
    except FileNotFoundError as error:
        raise Refusal(protocol.REJECTED, "File {} does not exist in {}.".format(name, folder)) from error
    except (NotRegular, NotADirectoryError) as error:
        sentence = "{} cannot be read: it is not a regular file, or its path contains a link.".format(name)
        raise Refusal(protocol.REJECTED, sentence) from error
    except OSError as error:
        raise system_refusal(error, "Reading {}".format(name)) from error
    try:
        size = os.fstat(descriptor).st_size
        start = offset if offset >= 0 else max(0, size + offset)
        return {"data": os.pread(descriptor, min(limit, _MAX_READ), start), "size": size}
    except OSError as error:
        raise system_refusal(error, "Reading {}".format(name)) from error
    finally:
        os.close(descriptor)


def names(folder: str) -> Dict[str, Any]:
    """Paths of its `files`, and whether they are complete; none if it is missing."""
    parent, name = os.path.split(folder.rstrip("/"))
    found = foreign_files.listing(parent, name)
    return {"files": [path[len(name) + 1 :] for path in found.files], "is_complete": found.is_complete}


def _make_below(folder: OpenFolder, name: str, undo: Undo) -> None:
    for made in foreign_files.make_folder(folder, name):
        undo.add(_quietly, os.rmdir, folder.path, made)


def _quietly(operation: Callable[[str], None], folder: str, name: str = "") -> None:
    with suppress(OSError):
        operation(os.path.join(folder, name) if name else folder)
