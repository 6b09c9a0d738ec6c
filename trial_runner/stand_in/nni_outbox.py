"""The outbox of trial code: one JSON line for each result, appended to a file that the manager reads later; and the
record of parameters that the trial was started with.

Nothing here needs the manager: a result is safe once its line is in the file. Each process writes its own file,
``<pid>-<8 random hex digits>.jsonl`` in the folder of ``$NNI_OUTBOX``; the file ``$NNI_OUTBOX`` itself is for programs
without an SDK. So each file has one writer, and a line's number in its file identifies it. Standard library only,
Python 3.7; `json` is imported when a value first needs it.
"""

from __future__ import annotations

import errno
import os
from _thread import RLock
from time import monotonic, sleep

TYPE_CHECKING = False  # `typing` is slow to import and only checkers need it
if TYPE_CHECKING:
    from typing import Any, Callable

INTERMEDIATE = "intermediate"
FINAL = "final"

#: Maximum size of one line in bytes, with its newline.
MAX_LINE = 1000000

#: Seconds to wait while the disk is full or fails.
PATIENCE = 600.0
FIRST_WAIT = 0.05
LONGEST_WAIT = 2.0
#: The greatest step: beyond it JSON numbers are not always exact.
MOST_STEPS = 2**53 - 1

#: Errors that may pass: a full disk gets space, a network file system comes back.
PASSING = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO))


def report(kind: str, value: object, step: int | None = None) -> None:
    """Appends one result (`INTERMEDIATE` or `FINAL`) to this process's outbox; returns when the file has it.

    `step`: of an intermediate result, from 0. Raises TypeError for a value that is not JSON and a step that is not a
    whole number, ValueError above `MAX_LINE` and for a step below 0, and OSError, naming the file, if it is not
    writable; waits up to `PATIENCE` seconds for a full disk.
    """
    _outbox.append(encode_line(kind, json_text(value), checked_step(step)))


def report_text(kind: str, text: str) -> None:
    """Reports a value that is JSON text on one line already. Raises ValueError and OSError as `report`."""
    _outbox.append(encode_line(kind, text))


def settle() -> None:
    """Remembers where results go. A program may change its environment later, or leave its folder."""
    _outbox.settle()


def checked_step(step: Any) -> int | None:
    """The step as a plain number. Raises TypeError, ValueError."""
    if step is None or (type(step) is int and 0 <= step <= MOST_STEPS):
        return step
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError("A step must be a whole number from 0, but it is {!r}.".format(step))
    number: int = step.__index__()  # such as numpy's
    if not 0 <= number <= MOST_STEPS:
        raise ValueError("A step must be a whole number from 0 to 2**53 - 1, but it is {}.".format(number))
    return number


def encode_line(kind: str, text: str, step: int | None = None) -> bytes:
    """The line of one result, newline included. Raises ValueError above `MAX_LINE`."""
    place = "" if step is None else ',"step":{}'.format(step)
    line = '{{"type":"{}","value":{}{}}}\n'.format(kind, text, place).encode()
    if len(line) > MAX_LINE:
        raise ValueError(
            "A reported result takes {} bytes and at most {} are allowed: report a summary and write the rest to a "
            "file in $NNI_OUTPUT_DIR.".format(len(line), MAX_LINE)
        )
    return line


def json_text(value: object) -> str:
    """JSON of a value, ASCII only. NaN and Infinity stand bare; arrays become ``{"__ndarray__", "dtype", "shape"}``.

    Sets, complex and decimal numbers, paths and times without a zone are written as NNI's SDK writes them: tagged.
    Arrays and scalars of numpy, PyTorch, JAX and TensorFlow are recognised by their methods; none of them is imported.
    Raises TypeError naming the type that has no JSON form.
    """
    if type(value) is float and value - value == 0:  # finite; most results are plain numbers, and need no json module
        return repr(value)
    if type(value) is int:
        return repr(value)
    import json

    try:
        return json.dumps(value, default=_plain)
    except TypeError as error:
        raise TypeError(
            "This result cannot be reported: {}. Report a number, or an object with the number under 'default'.".format(
                error
            )
        ) from error


def _plain(value: Any) -> object:
    if getattr(value, "ndim", 0) and hasattr(value, "tolist"):
        return {"__ndarray__": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if hasattr(value, "item"):
        number = value.item()
        return float(number) if type(number) is type(value) else number  # numpy.longdouble is its own item
    if hasattr(value, "numpy"):
        return value.numpy()
    tagged = _tagged(value)
    if tagged is None:
        raise TypeError("a value of type {} is not JSON".format(type(value).__qualname__))
    return tagged


#: The parts of a time that are written, where they are not 0.
_PARTS = {
    "datetime.datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond"),
    "datetime.date": ("year", "month", "day"),
    "datetime.timedelta": ("days", "seconds", "microseconds"),
}


def _tagged(value: Any) -> object:
    if isinstance(value, (set, frozenset)):
        return {"__set__": _in_order(value)}
    if isinstance(value, complex):
        return {"__complex__": [value.real, value.imag]}
    if hasattr(value, "__fspath__"):
        return {"__pathlib__": os.fspath(value)}
    name = "{}.{}".format(type(value).__module__, type(value).__qualname__)  # its module is not imported for that
    if name == "decimal.Decimal":
        return {"__decimal__": str(value)}
    if name not in _PARTS or getattr(value, "tzinfo", None) is not None:
        return None
    parts = {part: getattr(value, part) for part in _PARTS[name] if getattr(value, part)}
    return dict({"__{}__".format(type(value).__name__): None}, **parts)


def _in_order(values: Any) -> object:
    try:
        return sorted(values)
    except TypeError:
        return list(values)


class Outbox:
    """The outbox of this process: opened at the first append, again after a fork. Thread-safe.

    If the state of the file is uncertain, a new one is begun: in a forked child, in a signal handler that reports
    during an append of its own thread, and after an append that Ctrl-C ended.
    """

    _file: _File | None

    def __init__(self, folder: str | None = None) -> None:
        """`folder`: where files are created; None: read from the environment, at `settle` or the first append."""
        self._folder = folder
        self._begin_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def settle(self) -> None:
        """Reads the environment now. If it has no folder, the first append raises."""
        try:
            self._folder = self._folder or _folder_from_environment()
        except RuntimeError:
            pass

    def append(self, line: bytes) -> None:
        """Writes one line, newline included. Raises OSError naming the file, RuntimeError without a folder."""
        with self._lock:
            file = self._file
            if file is None or file.busy or file.pid != os.getpid():
                file = self._file = _File(self._folder or _folder_from_environment())
            file.append(line)

    def _begin_anew(self) -> None:
        # The parent's lock may be held by a thread that the child does not have. Its descriptor is left open: by now
        # the number may belong to something else.
        self._lock = RLock()
        self._file = None


class _File:
    def __init__(self, folder: str) -> None:
        self.pid = os.getpid()
        #: An append has begun and not come to its end.
        self.busy = False
        self._path = os.path.join(folder, "{}-{}.jsonl".format(self.pid, os.urandom(4).hex()))
        self._unwritten = b""
        self._descriptor = -1
        self._patiently(self._open)

    def append(self, line: bytes) -> None:
        """Writes a line after the rest of the one before it. A completely unwritten line is given up."""
        self.busy = True
        try:
            self._patiently(self._write)
            self._unwritten = line
            self._patiently(self._write)
        except OSError:
            if self._unwritten is line:
                self._unwritten = b""
            self.busy = False
            raise
        self.busy = False

    def _open(self) -> None:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)

    def _write(self) -> None:
        while self._unwritten:
            written = os.write(self._descriptor, self._unwritten)
            self._unwritten = self._unwritten[written:]

    def _patiently(self, operation: Callable[[], None]) -> None:
        wait = 0.0
        while True:
            try:
                return operation()
            except OSError as error:
                if wait == 0.0:
                    deadline, wait = monotonic() + PATIENCE, FIRST_WAIT
                if error.errno not in PASSING or monotonic() + wait > deadline:
                    text = "Could not append a result to the outbox ({})".format(error.strerror)
                    raise OSError(error.errno, text, self._path) from error
            sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def _folder_from_environment() -> str:
    if os.environ.get("NNI_OUTBOX"):
        return os.path.dirname(os.path.abspath(os.environ["NNI_OUTBOX"]))
    if os.environ.get("NNI_SYS_DIR"):
        return os.path.join(os.path.abspath(os.environ["NNI_SYS_DIR"]), "outbox")
    raise RuntimeError(
        "NNI_OUTBOX and NNI_SYS_DIR are not set, so results cannot be reported. Start the program as a trial, or "
        "unset NNI_PLATFORM to run it without an experiment."
    )


_outbox = Outbox()


def read_record() -> str:
    """JSON text of ``parameter.cfg`` in ``$NNI_SYS_DIR``; it is there before the trial starts.

    Raises RuntimeError when it is not: then this process is not a trial, or no longer one.
    """
    folder = os.environ.get("NNI_SYS_DIR")
    if not folder:
        raise RuntimeError(
            "This trial has no parameters: NNI_PLATFORM is set but NNI_SYS_DIR is not. Start the program as a trial, "
            "or unset NNI_PLATFORM to run it without an experiment."
        )
    path = os.path.join(folder, "parameter.cfg")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise RuntimeError(
            "This trial's parameters cannot be read from {} ({}). Check that its folder still exists on this "
            "machine.".format(path, error.strerror)
        ) from error
