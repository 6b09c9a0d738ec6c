"""The results that trials report, posted outbox by outbox in turns.

Includes results that NNI's 2.x SDK prints, as lines of an outbox: ``NNISDK_MEb'{"type": "FINAL", "value": "0.75",
…}'``. The files are the buffer: only one batch is in memory. An offset in a post is the file's, plus the size that an
earlier runner of this attempt delivered from a file that is not here (its container is gone). So stored data stays as
it is, and new data is added to it.
"""

import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Set

from trial_runner import protocol
from trial_runner.outboxes import Outboxes, OutboxRecords
from trial_runner.runner.client import Answer, Post, Refused, Unavailable
from trial_runner.runner.delivery import Undelivered
from trial_runner.runner.posts import Stream
from trial_runner.wire import foreign_files, removal
from trial_runner.wire.descriptors import Descriptor
from trial_runner.wire.outbox_files import file_name, file_of

_TOO_LARGE = 413
_SMALLEST_CHUNK = 1024
#: Seconds that results wait for others; the last result usually for the end of the command.
_GATHER_S = 0.05


class OutboxForward(Stream):
    """`stored`: number of bytes that the manager has of each outbox."""

    def __init__(self, outboxes: Outboxes, folder: str, stored: Dict[str, int], undelivered: Undelivered) -> None:
        super().__init__()
        self._outboxes = outboxes
        self._outboxes.chunk_bytes = protocol.MAX_METRICS_POST
        self._undelivered = undelivered
        self._shifts = {name: max(0, size - _size(folder, file_of(name, stored))) for name, size in stored.items()}
        self._outboxes.rewind({name: size - self._shifts[name] for name, size in stored.items()})
        #: Number of bytes known to be stored, by outbox.
        self.stored = dict(stored)
        self._given_up: Set[str] = set()
        #: The file of the pending chunk.
        self._latest = ""
        self._pending: Optional[OutboxRecords] = None
        #: Outboxes of the last listing that are still to be sent in this round.
        self._round: List[str] = []
        self._has_changed = True
        #: When changes are read, by the monotonic clock.
        self._look_at = 0.0

    def note_change(self) -> None:
        if self.is_ending:
            self._look_at = 0.0
        elif not self._has_changed:
            self._look_at = time.monotonic() + _GATHER_S
        self._has_changed = True

    def wanted_at(self) -> Optional[float]:
        if self._pending is None and self._has_changed:
            if self._look_at > time.monotonic():
                return self._look_at
            self._pending = self._next_chunk()
            self._has_changed = self._pending is not None
        return None if self._pending is None else 0.0

    def post(self) -> Post:
        assert self._pending is not None, "nothing is due"
        chunk, shift = self._pending, self._shifts.get(self._pending.outbox, 0)
        return "metrics", {
            "outbox": chunk.outbox,
            "start": chunk.start + shift,
            "end": chunk.end + shift,
            "lines": chunk.lines,
        }

    def settle(self, answer: Answer) -> None:
        assert self._pending is not None, "nothing was due"
        chunk = self._pending
        try:
            offset = answer()["offset"]
        except Refused as error:
            self._on_refused(chunk, error)
            return
        except Unavailable as error:
            if error.status != _TOO_LARGE or not self._can_be_smaller(chunk):
                raise
            self._make_smaller(chunk)  # a proxy may limit the size
            return
        self._on_stored(chunk, offset)

    def give_up(self) -> None:
        super().give_up()
        self._undelivered.add("Time ran out before all results were delivered: the rest stays in the trial's folder.")

    @property
    def is_last(self) -> bool:
        """False also if the files do not show it reliably: replaced ones, and too many to count."""
        if self._round:
            return False
        read, there = self._outboxes.offsets(), self._outboxes.sizes()
        is_plain = set(read) <= set(there) and len(there) < protocol.MOST_OUTBOXES and not self._given_up
        return is_plain and all(size == read.get(name, 0) for name, size in there.items())

    def sizes(self) -> Dict[str, int]:
        """Stored bytes of the first outboxes, including current posts: a post about thousands would be too large."""
        sizes = dict(self.stored)
        if self._pending is not None and not self.is_given_up:
            sizes[self._pending.outbox] = self._pending.end + self._shifts.get(self._pending.outbox, 0)
        return dict(sorted(sizes.items())[: protocol.MOST_OUTBOXES])

    def _next_chunk(self) -> Optional[OutboxRecords]:
        """The next chunk: each outbox once per round; the folder is listed once per round."""
        for names in (self._round, None):
            self._round = self._outboxes.names()[::-1] if names is None else names
            while self._round:
                outbox = self._round.pop()
                chunk = None if outbox in self._given_up else self._outboxes.next_chunk(outbox, self.is_ending)
                if chunk is not None:
                    self._latest = outbox
                    return chunk
        return None

    def _on_stored(self, chunk: OutboxRecords, offset: int) -> None:
        self.stored[chunk.outbox] = offset
        local = max(0, offset - self._shifts.get(chunk.outbox, 0))
        self._pending = None
        self._outboxes.move(chunk.outbox, local)
        if local <= chunk.start and chunk.end > chunk.start:
            raise Unavailable("the manager has {} only up to byte {}".format(chunk.outbox, offset))

    def _on_refused(self, chunk: OutboxRecords, error: Refused) -> None:
        if error.status == _TOO_LARGE and self._can_be_smaller(chunk):
            self._make_smaller(chunk)
        elif error.status == _TOO_LARGE and chunk.lines:
            self._undelivered.add("{} has, at offset {}, a record that is too large for the manager".format(*chunk[:2]))
            self._pending = chunk._replace(lines=[protocol.TOO_LONG] if chunk.lines != [protocol.TOO_LONG] else [])
        else:
            sentence = "The manager refused {} ({}): it stays in the trial's folder."
            self._undelivered.add(sentence.format(chunk.outbox, error))
            self._given_up.add(self._latest)  # the file, whatever its outbox is now
            self._pending = None

    def _can_be_smaller(self, chunk: OutboxRecords) -> bool:
        return len(chunk.lines) > 1 and self._outboxes.chunk_bytes > _SMALLEST_CHUNK

    def _make_smaller(self, chunk: OutboxRecords) -> None:
        """Halves the chunks; this outbox is first in the next round, or in this one."""
        self._outboxes.chunk_bytes //= 2
        self._outboxes.move(chunk.outbox, chunk.start)
        self._round.append(self._latest)
        self._pending = None


def _size(folder: str, name: str) -> int:
    try:
        return foreign_files.size(folder, file_name(name))
    except OSError:
        return 0


_READ_BYTES = 256 * 1024
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_TYPES = {"PERIODICAL": "intermediate", "FINAL": "final"}

_decoder = json.JSONDecoder()


class StdoutMetrics:
    """Follows one file and fills one outbox, from its beginning."""

    def __init__(self, stdout: str, outbox: str, say: Callable[[str], None]) -> None:
        self._stdout = stdout
        self._outbox = outbox
        self._say = say
        self._offset = 0
        self._buffer = b""
        self._unwritten = b""
        self._trouble = ""
        removal.remove(outbox)

    def extract(self, is_all: bool) -> None:
        """Reads new data. `is_all`: the output is complete. A full disk delays results, but loses none."""
        try:
            self._write()
            while self._read():
                self._take(False)
                self._write()
            self._take(is_all)
            self._write()
            self._trouble = ""
        except OSError as error:
            if not self._trouble:
                self._trouble = str(error)
                self._say("Printed results cannot be copied to an outbox yet: {}".format(error))

    def _read(self) -> bool:
        try:
            data = foreign_files.read(*os.path.split(self._stdout), offset=self._offset, limit=_READ_BYTES)
        except FileNotFoundError:
            return False
        self._offset += len(data)
        self._buffer += data
        return bool(data)

    def _take(self, is_all: bool) -> None:
        """Results in complete lines; of the rest, only a possible result is kept."""
        mark = protocol.STDOUT_METRIC_MARK
        begin = self._buffer.find(mark)
        while begin >= 0:
            end = self._buffer.find(b"\n", begin)
            if end < 0 and not is_all:
                break
            end = len(self._buffer) if end < 0 else end
            self._unwritten += _lines(self._buffer[begin:end])
            self._buffer = self._buffer[end:]
            begin = self._buffer.find(mark)
        if begin < 0:
            self._buffer = self._buffer[-len(mark) + 1 :]
        elif len(self._buffer) - begin > protocol.MAX_RECORD:
            self._buffer = self._buffer[begin + len(mark) :]
        else:
            self._buffer = self._buffer[begin:]

    def _write(self) -> None:
        if not self._unwritten:
            return
        outbox = foreign_files.open_file(*os.path.split(self._outbox), flags=_APPENDING, mode=0o666)
        with Descriptor(outbox) as descriptor:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(descriptor, self._unwritten) :]


def _lines(printed: bytes) -> bytes:
    """The result lines in one printed line, which begins with a mark; two threads may have printed at once."""
    texts = printed.decode("utf-8", "replace").split(protocol.STDOUT_METRIC_MARK.decode())[1:]
    return b"".join(line.encode() for line in map(_line, texts) if line is not None)


def _line(text: str) -> Optional[str]:
    """The outbox line of a printed result; None for other text."""
    try:
        record, _ = _decoder.raw_decode(text)
        type_, value = _TYPES[record["type"]], record["value"]
        return '{{"type":"{}","value":{}}}\n'.format(type_, _json(value))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _json(value: Any) -> str:
    """A value as one line of JSON; JSON text is kept. Raises ValueError."""
    if not isinstance(value, str):
        return json.dumps(value)
    decoded = json.loads(value)
    return json.dumps(decoded) if "\n" in value or "\r" in value or not value.isascii() else value
