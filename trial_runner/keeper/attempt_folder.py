"""The folder of an attempt: made and filled before its job starts, read on request; no path leads out of it."""

import os
import stat
from contextlib import ExitStack
from typing import Any, Dict

from trial_runner import protocol
from trial_runner.keeper.refusal import Refusal, system_refusal
from trial_runner.whole_file import write_file

#: Bytes of one answer, before base64.
_MAX_READ = 4 * 1024 * 1024


def make(folder: str, undo: ExitStack) -> bool:
    """Whether it was missing and is made now; `undo` takes back what was made. Raises OSError."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if os.path.isdir(folder):
            return False
        raise
    except FileNotFoundError:
        make(os.path.dirname(folder), undo)
        os.mkdir(folder, 0o700)
    undo.callback(_quietly, os.rmdir, folder)
    return True


def fill(folder: str, files: Dict[str, str], undo: ExitStack) -> None:
    """Makes the outbox folder and the files. Raises OSError, and Refusal when a path leads out of the folder."""
    make(os.path.join(folder, protocol.OUTBOX_FOLDER), undo)
    for name, text in files.items():
        path = os.path.join(folder, check_relative(name))
        if "/" in name:
            _check_inside(folder, os.path.realpath(path), name)
            make(os.path.dirname(path), undo)
        write_file(path, text.encode("utf-8", "surrogateescape"))
        undo.callback(_quietly, os.unlink, path)


def remove_exit_file(folder: str) -> None:
    """Left by an earlier job in the same place, it would be taken for the next job's."""
    _quietly(os.unlink, os.path.join(folder, protocol.EXIT_FILE))


def open_output(folder: str, name: str, undo: ExitStack) -> int:
    """A descriptor that appends to `stdout` or `stderr`. Raises OSError."""
    path = os.path.join(folder, name)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    if os.fstat(descriptor).st_size == 0:
        undo.callback(_quietly, os.unlink, path)
    return descriptor


def has_output(folder: str) -> bool:
    """Whether `open_output` was ever called for it, which is the last thing before a job's start."""
    return os.path.lexists(os.path.join(folder, protocol.STDOUT_FILE))


def check_relative(name: str) -> str:
    """The name itself. Raises Refusal for one that is absolute, empty, or climbs."""
    if not name or "\0" in name or os.path.isabs(name) or ".." in name.split("/") or name.endswith("/"):
        raise Refusal(
            protocol.REJECTED,
            "The file name {!r} is not a path inside the attempt's folder: use a relative one.".format(name),
        )
    return name


def read(folder: str, name: str, offset: int, limit: int) -> Dict[str, Any]:
    """`data` (bytes, at most `limit` from `offset`) and the file's `size`. Raises Refusal."""
    try:
        # O_NONBLOCK: a named pipe would hold us until somebody writes to it.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(os.path.join(folder, check_relative(name)), flags)
    except FileNotFoundError as error:
        raise Refusal(protocol.REJECTED, "There is no file {} in {}.".format(name, folder)) from error
    except OSError as error:
        raise system_refusal(error, "Reading {}".format(name)) from error
    try:
        # The name of what was opened, so nothing can be exchanged between the check and the use.
        _check_inside(folder, os.readlink("/proc/self/fd/{}".format(descriptor)), name)
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise Refusal(protocol.REJECTED, "{} is not a regular file and cannot be read.".format(name))
        return {"data": os.pread(descriptor, min(limit, _MAX_READ), offset), "size": state.st_size}
    except OSError as error:
        raise system_refusal(error, "Reading {}".format(name)) from error
    finally:
        os.close(descriptor)


def stderr_tail(folder: str) -> str:
    """The last bytes of standard error; empty when it cannot be read."""
    try:
        with open(os.path.join(folder, protocol.STDERR_FILE), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - protocol.MAX_STDERR_TAIL))
            return file.read(protocol.MAX_STDERR_TAIL).decode("utf-8", "replace")
    except OSError:
        return ""


def _check_inside(folder: str, real_path: str, name: str) -> None:
    if not real_path.startswith(os.path.realpath(folder) + os.sep):
        raise Refusal(
            protocol.REJECTED, "The file {!r} leads out of the attempt's folder and is not touched.".format(name)
        )


def _quietly(operation: Any, path: str) -> None:
    try:
        operation(path)
    except OSError:
        pass
