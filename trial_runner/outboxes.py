"""The outboxes of one job, read from where they were last read. The files are the buffer: nothing is kept here."""

import json
import os
import stat
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from trial_runner import protocol
from trial_runner.records import Records, cut_first, cut_frames, cut_lines

#: Bytes read at once where nobody says otherwise.
_CHUNK_BYTES = 256 * 1024
#: So many bytes before the place where the next read begins are compared with what was there.
_TAIL_BYTES = 64


class Chunk(NamedTuple):
    """Records of one outbox between two byte offsets."""

    outbox: str
    start: int
    end: int
    lines: List[str]


class _Replaced(Exception):
    """The file does not hold what was read of it."""


class _Tail(NamedTuple):
    """The last bytes that were read of a file, and by what a change of it shows."""

    data: bytes
    changed: Tuple[int, int]


class Outboxes:
    """Files below `outbox/`, and NNI's metrics file. Names that begin with a dot are nobody's outbox.

    A file that became shorter, or another one, is a new outbox: `outbox/a.jsonl` becomes `outbox/a.jsonl/2`, where no
    file can be. Which of its lines are new, whoever has the old ones knows.
    """

    def __init__(self, attempt_directory: str, log: Callable[[str], None]) -> None:
        self._attempt_directory = attempt_directory
        self._log = log
        self._offsets: Dict[str, int] = {}
        #: Of files that became other ones: the outbox's present name.
        self._names: Dict[str, str] = {}
        self._tails: Dict[str, _Tail] = {}
        #: Where the search for the end of a line that is too long goes on.
        self._searched: Dict[str, int] = {}
        #: Bytes read at once; longer only for a single record that is longer.
        self.chunk_bytes = _CHUNK_BYTES

    def rewind(self, offsets: Dict[str, int]) -> None:
        """The next chunks begin at these byte offsets; at 0 in outboxes that are not named."""
        self._offsets = dict(offsets)
        self._names.clear()
        self._tails.clear()
        self._searched.clear()

    def move(self, outbox: str, offset: int) -> None:
        """The next chunk of this outbox begins there."""
        if self._offsets.get(outbox, 0) != offset:
            self._offsets[outbox] = offset
            self._tails.pop(outbox, None)
            self._searched.pop(outbox, None)

    def offsets(self) -> Dict[str, int]:
        """Where the next chunk of each outbox that was ever read begins."""
        return dict(self._offsets)

    def chunks(self, is_all: bool) -> Iterator[Chunk]:
        """What is new. A caller that stops in between goes on there next time. `is_all`: nobody writes any more."""
        for outbox in self.names():
            chunk = self.next_chunk(outbox, is_all)
            while chunk is not None:
                yield chunk
                chunk = self.next_chunk(outbox, is_all)

    def names(self) -> List[str]:
        """The outboxes that there are now."""
        files = sorted(self._walk()[1])
        return [*files, protocol.METRICS_FILE] if self._has_metrics_file() else files

    def next_chunk(self, outbox: str, is_all: bool) -> Optional[Chunk]:
        """What is new in one outbox; None when there is nothing that is complete."""
        name = self._name_of(outbox)
        start = self._offsets.get(name, 0)
        try:
            records = self._read(outbox, name, start, is_all)
        except _Replaced:
            return self._begin_again(outbox, name)
        except OSError as error:
            self._log("{}/{} cannot be read: {}".format(self._attempt_directory, outbox, error.strerror))
            return None
        if records is None or records.length == 0:
            return None
        if records.skipped:
            self._log_skipped(outbox, start, records.skipped)
        self._offsets[name] = start + records.length
        return Chunk(name, start, start + records.length, records.texts)

    def _name_of(self, file: str) -> str:
        """The outbox that a file is now."""
        if file not in self._names:
            name, number = file, 2
            while "{}/{}".format(file, number) in self._offsets:
                name, number = "{}/{}".format(file, number), number + 1
            self._names[file] = name
        return self._names[file]

    def _begin_again(self, file: str, name: str) -> Chunk:
        """Nothing of it yet, which tells that it is another one."""
        number = 2 if name == file else int(name.rpartition("/")[2]) + 1
        self._names[file] = again = "{}/{}".format(file, number)
        self._offsets[again] = 0
        if number == 2:
            sentence = "{}/{} became shorter or another file: append to it, with >> in a shell"
            self._log(sentence.format(self._attempt_directory, file))
        return Chunk(again, 0, 0, [])

    def folders(self) -> List[str]:
        """Folders below the attempt's that hold outboxes, deeper ones after their parents."""
        return self._walk()[0]

    def _walk(self) -> Tuple[List[str], List[str]]:
        folders = [protocol.OUTBOX_FOLDER]
        files: List[str] = []
        for folder in folders:
            for entry in self._entries(folder):
                name = "{}/{}".format(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(name)
        return folders, files

    def _entries(self, folder: str) -> "List[os.DirEntry[str]]":
        try:
            with os.scandir(os.path.join(self._attempt_directory, folder)) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            return []

    def _has_metrics_file(self) -> bool:
        try:
            mode = os.lstat(os.path.join(self._attempt_directory, protocol.METRICS_FILE)).st_mode
        except OSError:
            return False
        return stat.S_ISREG(mode)

    def _read(self, outbox: str, name: str, start: int, is_all: bool) -> Optional[Records]:
        """Raises OSError and _Replaced."""
        path = os.path.join(self._attempt_directory, outbox)
        status, tail = os.lstat(path), self._tails.get(name)
        if status.st_size == start and (tail is None or tail.changed == _changed(status)):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            self._require_same(descriptor, outbox, name, start, status.st_size)
            # one byte more than there is shows the end; a whole chunk's room would be got and given back each time
            size = min(status.st_size - start + 1, self.chunk_bytes)
            records = self._read_records(descriptor, outbox, name, start, is_all, size)
            self._note_tail(descriptor, name, start + records.length, _changed(status))
            return records
        finally:
            os.close(descriptor)

    def _require_same(self, descriptor: int, outbox: str, name: str, start: int, size: int) -> None:
        """Raises _Replaced. A file whose last bytes nobody remembers is recognised by the end of the line before."""
        if size < start:
            raise _Replaced
        tail = self._tails.get(name)
        if tail is not None:
            if os.pread(descriptor, len(tail.data), start - len(tail.data)) != tail.data:
                raise _Replaced
        elif outbox != protocol.METRICS_FILE and 0 < start < size and os.pread(descriptor, 1, start - 1) != b"\n":
            raise _Replaced

    def _note_tail(self, descriptor: int, name: str, end: int, changed: Tuple[int, int]) -> None:
        length = min(end, _TAIL_BYTES)
        self._tails[name] = _Tail(os.pread(descriptor, length, end - length), changed)

    def _read_records(self, descriptor: int, outbox: str, name: str, start: int, is_all: bool, size: int) -> Records:
        cut = cut_frames if outbox == protocol.METRICS_FILE else cut_lines
        while name not in self._searched:
            data = os.pread(descriptor, size, start)
            is_last = is_all and len(data) < size
            records = cut(data, is_last)
            if records.length == 0 and len(data) == size:
                if size >= protocol.MAX_LINE:
                    self._searched[name] = start + size
                size = min(4 * size, protocol.MAX_LINE)
                continue
            if records.length > self.chunk_bytes:
                return cut_first(cut, data, records)
            if is_last and records.length < len(data):
                self._log_skipped(outbox, start + records.length, len(data) - records.length)
            return records
        return self._pass_over(descriptor, name, start, is_all)

    def _pass_over(self, descriptor: int, name: str, start: int, is_all: bool) -> Records:
        """A line that is too long, once its end is there: another line says so in its place."""
        data = os.pread(descriptor, protocol.MAX_LINE, self._searched[name])
        while data and b"\n" not in data:
            self._searched[name] += len(data)
            data = os.pread(descriptor, protocol.MAX_LINE, self._searched[name])
        if not data and not is_all:
            return Records([], 0, 0)
        length = self._searched.pop(name) + data.find(b"\n") + 1 - start
        line = {"type": protocol.TOO_LONG, "bytes": length, "limit": protocol.MAX_LINE}
        return Records([json.dumps(line)], length, 0)

    def _log_skipped(self, outbox: str, start: int, length: int) -> None:
        place = os.path.join(self._attempt_directory, outbox)
        self._log("{} has {} bytes that are no record at offset {}".format(place, length, start))


def _changed(status: os.stat_result) -> Tuple[int, int]:
    return status.st_mtime_ns, status.st_ino
