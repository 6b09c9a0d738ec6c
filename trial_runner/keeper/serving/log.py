"""keeper.log: what a keeper did without a request. Commands and environments are never in it."""

import os
import time
import traceback

_MAX_BYTES = 1024 * 1024


class Log:
    """Lines with a time; at most two files of one MiB. A full disk costs lines, nothing else."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._size = 0

    def write(self, sentence: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        line = "{} [{}] {}\n".format(stamp, os.getpid(), sentence).encode("utf-8", "backslashreplace")
        try:
            self._make_room(len(line))
            os.write(self._descriptor, line)
        except OSError:
            return
        self._size += len(line)

    def error(self, error: BaseException) -> None:
        """A fault of the keeper itself, with its stack."""
        self.write("".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip())

    def _make_room(self, length: int) -> None:
        if self._descriptor >= 0 and self._size + length <= _MAX_BYTES:
            return
        self._open()
        if self._size + length > _MAX_BYTES:
            os.rename(self._path, self._path + ".1")
            self._open()

    def _open(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._descriptor).st_size
