"""The outboxes of one job, read from the last position on. The files are the buffer: nothing is stored here."""

import os
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from trial_runner import protocol
from trial_runner.wire import foreign_files, outbox_files
from trial_runner.wire.descriptors import Descriptor
from trial_runner.wire.foreign_files import Folder, OpenFolder
from trial_runner.wire.outbox_files import Records, file_name, may_begin_at, newest_name, next_name, read_records

#: Default number of bytes per read.
_CHUNK_BYTES = 256 * 1024
#: Number of bytes before the next read position to compare with the earlier content.
_TAIL_BYTES = 64
#: Maximum number of files named in a sentence.
_MOST_NAMED = 3


class OutboxRecords(NamedTuple):
    """Records of one outbox between two byte offsets."""

    outbox: str
    start: int
    end: int
    lines: List[str]


class _Replaced(Exception):
    """The file does not contain what was read of it."""


class _Tail(NamedTuple):
    """The last bytes that were read of a file, and signs of its replacement."""

    data: bytes
    changed: Tuple[int, int]


class Outboxes:
    """Files below `outbox/`, and NNI's metrics file. Names that begin with a dot are ignored.

    A file that became shorter or was replaced is a new outbox: `outbox/a.jsonl` becomes `outbox/a.jsonl/2`, a path that
    no file can have. The receiver of the old lines knows which of its lines are new.
    """

    def __init__(self, attempt_directory: str, log: Callable[[str], None]) -> None:
        self._attempt_directory = attempt_directory
        self._log = log
        self._offsets: Dict[str, int] = {}
        #: For replaced files: the outbox's present name.
        self._names: Dict[str, str] = {}
        self._tails: Dict[str, _Tail] = {}
        self._has_too_many = False
        #: Reading failed for some files at the last check.
        self._has_failed = False
        #: The file had no more data at the last read.
        self._is_at_end = False
        #: Bytes per read; more only for a single longer record.
        self.chunk_bytes = _CHUNK_BYTES

    def rewind(self, offsets: Dict[str, int]) -> None:
        """Sets the byte offsets of the next chunks; 0 for other outboxes."""
        self._offsets = dict(offsets)
        self._names.clear()
        self._tails.clear()

    def look_in(self, attempt_directory: str) -> None:
        """Notes that the attempt's folder was moved."""
        self._attempt_directory = attempt_directory

    def move(self, outbox: str, offset: int) -> None:
        """Sets the offset of the outbox's next chunk."""
        if self._offsets.get(outbox, 0) != offset:
            self._offsets[outbox] = offset
            self._tails.pop(outbox, None)

    def offsets(self) -> Dict[str, int]:
        """Byte offsets of the next chunks, for all outboxes that were ever read."""
        return dict(self._offsets)

    def chunks(self, is_all: bool) -> Iterator[OutboxRecords]:
        """New records. A caller that stops in between continues there next time.

        `is_all`: the outboxes are complete; a last outbox then names unreadable or missing ones.
        """
        self._has_failed = False
        found = outbox_files.NOTHING
        try:
            folder = OpenFolder(self._attempt_directory)
        except OSError as error:
            self._note_failure(self._attempt_directory, error, is_said=is_all)
        else:
            with folder:
                found = self._present(folder)
                for outbox in found.names:
                    chunk = self._next_chunk(folder, outbox, is_all)
                    while chunk is not None:
                        yield chunk
                        chunk = None if self._is_at_end else self._next_chunk(folder, outbox, is_all)
        lines = self._doubts(found) if is_all else []
        if lines and not self._offsets.get(protocol.NOT_READ_OUTBOX):
            self._offsets[protocol.NOT_READ_OUTBOX] = size = sum(map(len, lines))
            yield OutboxRecords(protocol.NOT_READ_OUTBOX, 0, size, lines)

    def _doubts(self, found: outbox_files.Present) -> List[str]:
        """The lines that stand for results that were not read."""
        not_read = [protocol.NOT_READ] if self._has_too_many or self._has_failed else []
        is_gone = not self._has_failed and outbox_files.gone(found, self._offsets)
        return not_read + ([protocol.GONE] if is_gone else [])

    def gone(self) -> str:
        """A sentence about a missing folder of outboxes, or missing outboxes that were read before; or empty."""
        names = outbox_files.gone(self._present(self._attempt_directory), self._offsets)
        places = ", ".join(os.path.join(self._attempt_directory, name) for name in names[:_MOST_NAMED])
        return "{} is gone: results may be missing".format(places) if names else ""

    def names(self) -> List[str]:
        """The present outboxes, spelled as in `wire.outbox_files`; those that were read before come first, so other
        files cannot displace them."""
        return self._present(self._attempt_directory).names

    def end_lines(self) -> None:
        """Ends the last line of each present outbox that an earlier container was writing when it was ended: otherwise
        the first line of the next one would continue it."""
        for name in self.names()[: protocol.MOST_OUTBOXES]:
            with suppress(OSError):
                if name != protocol.METRICS_FILE:
                    _end_line(self._attempt_directory, file_name(name))

    def sizes(self) -> Dict[str, int]:
        """Size in bytes of each present outbox; one that vanishes meanwhile is left out."""
        found: Dict[str, int] = {}
        for name in self.names()[: protocol.MOST_OUTBOXES]:
            with suppress(OSError):
                found[name] = foreign_files.size(self._attempt_directory, file_name(name))
        return found

    def next_chunk(self, outbox: str, is_all: bool) -> Optional[OutboxRecords]:
        """New complete records of one outbox; None: there are none."""
        return self._next_chunk(self._attempt_directory, outbox, is_all)

    def _next_chunk(self, folder: Folder, outbox: str, is_all: bool) -> Optional[OutboxRecords]:
        name = self._name_of(outbox)
        start = self._offsets.get(name, 0)
        self._is_at_end = False
        try:
            records = self._read(folder, outbox, name, start, is_all)
        except _Replaced:
            return self._begin_again(outbox, name)
        except OSError as error:
            self._note_failure("{}/{}".format(self._attempt_directory, outbox), error)
            return None
        if records is None or records.length == 0:
            return None
        if records.skipped:
            self._log_skipped(outbox, start, records.skipped)
        self._offsets[name] = start + records.length
        return OutboxRecords(name, start, start + records.length, records.texts)

    def _note_failure(self, path: str, error: OSError, is_said: bool = True) -> None:
        self._has_failed = self._has_failed or not isinstance(error, FileNotFoundError)
        if is_said or self._has_failed:
            self._log("{} cannot be read: {}".format(path, error.strerror))

    def _name_of(self, file: str) -> str:
        if file not in self._names:
            self._names[file] = newest_name(file, self._offsets)
        return self._names[file]

    def _begin_again(self, file: str, name: str) -> OutboxRecords:
        """An empty chunk of a restarted outbox, which shows that it was replaced."""
        self._names[file] = again = next_name(file, name)
        self._offsets[again] = 0
        if name == file:
            sentence = "{}/{} became shorter or was replaced: append to it, with >> in a shell"
            self._log(sentence.format(self._attempt_directory, file))
        return OutboxRecords(again, 0, 0, [])

    def folders(self) -> List[str]:
        """Folders below the attempt's that contain outboxes, deeper ones after their parents."""
        return self._present(self._attempt_directory).folders

    def _present(self, folder: Folder) -> outbox_files.Present:
        found = outbox_files.present(folder, self._offsets)
        if not found.is_complete and not self._has_too_many:
            self._has_too_many = True
            place = os.path.join(self._attempt_directory, protocol.OUTBOX_FOLDER)
            sentence = "{} cannot be listed, or exceeds the limit of files or depth: part of it is not read"
            self._log(sentence.format(place))
        return found

    def _read(self, folder: Folder, outbox: str, name: str, start: int, is_all: bool) -> Optional[Records]:
        """Raises OSError and _Replaced."""
        file, tail = file_name(outbox), self._tails.get(name)
        if start:  # otherwise it was hardly read before
            status = foreign_files.status(folder, file)
            if status.st_size == start and (tail is None or tail.changed == _changed(status)):
                return None
        with Descriptor(foreign_files.open_file(folder, file)) as descriptor:
            status = os.fstat(descriptor)
            self._require_same(descriptor, outbox, name, start, status.st_size)
            # one byte more than the file has shows the end; a whole chunk's buffer would be allocated each time
            size = min(status.st_size - start + 1, self.chunk_bytes)
            records = self._read_records(descriptor, outbox, start, is_all, size)
            self._note_tail(descriptor, name, start + records.length, _changed(status))
            self._is_at_end = start + records.length == status.st_size
            return records

    def _require_same(self, descriptor: int, outbox: str, name: str, start: int, size: int) -> None:
        """Raises _Replaced. A file without remembered last bytes is recognized by the end of the line before."""
        if size < start:
            raise _Replaced
        tail = self._tails.get(name)
        if tail is not None:
            if os.pread(descriptor, len(tail.data), start - len(tail.data)) != tail.data:
                raise _Replaced
        elif start < size and not may_begin_at(descriptor, outbox, start):
            raise _Replaced

    def _note_tail(self, descriptor: int, name: str, end: int, changed: Tuple[int, int]) -> None:
        length = min(end, _TAIL_BYTES)
        self._tails[name] = _Tail(os.pread(descriptor, length, end - length), changed)

    def _read_records(self, descriptor: int, outbox: str, start: int, is_all: bool, size: int) -> Records:
        records = read_records(descriptor, outbox, start, is_all, size)
        there = os.fstat(descriptor).st_size - start if is_all else 0
        if there > records.length and (there < size or records.length == 0):  # otherwise it comes with the next chunk
            self._log_skipped(outbox, start + records.length, there - records.length)
        return records

    def _log_skipped(self, outbox: str, start: int, length: int) -> None:
        place = os.path.join(self._attempt_directory, outbox)
        self._log("{} has {} bytes without a record at offset {}".format(place, length, start))


def _changed(status: os.stat_result) -> Tuple[int, int]:
    return status.st_mtime_ns, status.st_ino


def _end_line(folder: str, name: str) -> None:
    with Descriptor(foreign_files.open_file(folder, name, os.O_RDWR | os.O_APPEND)) as file:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            foreign_files.write_all(file, b"\n")
