"""The files of a keeper: its folder, which is its working directory, with a state file for each job, and a log.

Names are relative to the folder, so it may be moved.
"""

import errno
import json
import os
import time
import traceback
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from trial_runner.wire.descriptors import Descriptor
from trial_runner.wire.foreign_files import write_all

JOBS = "jobs"
LOG = "keeper.log"


def is_home_deleted() -> bool:
    """Whether the keeper's folder was deleted; false if it was moved, or if the disk does not answer: jobs go on."""
    try:
        os.stat(JOBS)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


_SUFFIX = ".jsonl"
_SPARE_SUFFIX = ".spare"
#: Number of files of forgotten jobs that are kept for reuse.
_MOST_SPARE = 256


class Claim(NamedTuple):
    """The decisions about a job before it is started."""

    name: str
    owner: str
    #: See `process_tags`.
    tag: str
    attempt_directory: str
    boot_id: str
    #: Seconds between SIGTERM and SIGKILL if a request sets none.
    grace_s: float
    #: The keeper that made the claim, which has the tag itself while it starts the job; 0: unknown.
    keeper_pid: int = 0
    keeper_start_ticks: int = 0
    #: The reservation, which the keeper only stores; None in files of earlier versions.
    reservation: Optional[Dict[str, Any]] = None
    #: The keeper's folder when it made the claim; empty: unknown.
    home: str = ""

    @property
    def present_directory(self) -> str:
        """The attempt's folder, also after a move of the folder that it shares with the keeper's."""
        above = os.path.dirname(self.home)
        if not above or not self.attempt_directory.startswith(above + "/"):
            return self.attempt_directory
        try:
            here = os.path.dirname(os.getcwd())
        except FileNotFoundError:  # the keeper's folder was deleted
            return self.attempt_directory
        moved = os.path.join(here, self.attempt_directory[len(above) + 1 :])
        return moved if here != above and os.path.isdir(moved) else self.attempt_directory


class MainProcess(NamedTuple):
    """The process that runs the command."""

    pid: int
    start_ticks: int
    #: Milliseconds since the epoch.
    started_ms: int


class End(NamedTuple):
    """How a job ended; without evidence when it is LOST."""

    state: str
    exit_code: Optional[int]
    signal: Optional[int]
    ended_ms: int
    #: At most 2048 bytes of standard error, of a failed job.
    stderr_tail: str
    #: What happened to a LOST job, one sentence; otherwise empty.
    message: str = ""


class Record(NamedTuple):
    """The content of a state file."""

    claim: Claim
    main: Optional[MainProcess]
    end: Optional[End]


class StateFiles:
    """The folder of state files, which has one owner.

    A forgotten job's file is reused: on ext4, every deletion slows down the creation of files for minutes.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._spare: List[str] = []
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def claim(self, claim: Claim) -> None:
        """Raises FileExistsError if the name is taken; OSError, leaving nothing, if it cannot be written."""
        path = self._path(claim.name)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        draft = self._spare.pop() if self._spare else path + _SPARE_SUFFIX
        with Descriptor(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as descriptor:
            try:
                line = _line(claim._asdict())
                write_all(descriptor, line)
                # truncated afterwards: truncating first frees its block and, on ext4, flushes the file on close
                os.ftruncate(descriptor, len(line))
                os.rename(draft, path)
            except OSError:
                os.unlink(draft)
                raise

    def append(self, name: str, entry: NamedTuple) -> None:
        """Adds the main process or the end. Raises OSError."""
        with Descriptor(os.open(self._path(name), os.O_WRONLY | os.O_APPEND)) as descriptor:
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, _line(entry._asdict()))
            except OSError:
                os.ftruncate(descriptor, size)  # the next line must not continue a partial one
                raise

    def remove(self, name: str) -> None:
        """Removes the record of a job. Ignores a missing one. Raises OSError."""
        path = self._path(name)
        with suppress(FileNotFoundError):
            if len(self._spare) >= _MOST_SPARE:
                os.unlink(path)
            else:
                os.rename(path, path + _SPARE_SUFFIX)
                self._spare.append(path + _SPARE_SUFFIX)

    def load(self) -> Tuple[List[Record], List[str]]:
        """All records, and the names of files without a complete claim, for which no process was started."""
        records, empty = [], []
        self._spare = []
        for file_name in sorted(os.listdir(self._folder)):
            if file_name.endswith(_SPARE_SUFFIX):
                self._spare.append(os.path.join(self._folder, file_name))
            elif file_name.endswith(_SUFFIX):
                name = file_name[: -len(_SUFFIX)]
                record = _read_record(os.path.join(self._folder, file_name))
                # after a power loss, a reused file may have its previous content
                if record is None or record.claim.name != name:
                    empty.append(name)
                else:
                    records.append(record)
        return records, empty

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + _SUFFIX)


def _line(content: Dict[str, Any]) -> bytes:
    return (json.dumps(content) + "\n").encode()


def _read_record(path: str) -> Optional[Record]:
    with open(path, "rb") as file:
        entries = [entry for entry in map(_parse, file.read().split(b"\n")) if entry]
    claims = [Claim(**_fields(entry, Claim)) for entry in entries if _is_whole(entry, Claim)]
    mains = [MainProcess(**_fields(entry, MainProcess)) for entry in entries if _is_whole(entry, MainProcess)]
    ends = [End(**_fields(entry, End)) for entry in entries if _is_whole(entry, End)]
    if not claims:
        return None
    return Record(claims[0], mains[0] if mains else None, ends[0] if ends else None)


def _is_whole(entry: Dict[str, Any], kind: Any) -> bool:
    """Reads a claim with more or fewer fields, from a later or earlier version: a running job must not be mistaken for
    an incomplete claim."""
    return entry.keys() >= set(kind._fields) - set(kind._field_defaults)


def _fields(entry: Dict[str, Any], kind: Any) -> Dict[str, Any]:
    return {name: entry[name] for name in kind._fields if name in entry}


def _parse(line: bytes) -> Dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


_MAX_BYTES = 1024 * 1024


class Log:
    """Log lines with a time; at most two files of one MiB. A full disk only loses lines."""

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
        """Logs an error of the keeper itself, with its stack."""
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
