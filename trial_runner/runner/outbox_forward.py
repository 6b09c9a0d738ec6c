"""Posts what trials report, outbox by outbox in turns. The files are the buffer: one batch is in memory.

An offset in a post is the file's, plus what an earlier runner of this attempt delivered from a file that is not here
(its container is gone). So what the manager has stored stays as it is, and what comes now is added to it.
"""

import time
from typing import Dict, List, Optional, Set

from trial_runner import protocol
from trial_runner.outboxes import Outboxes, OutboxRecords
from trial_runner.runner.client import Answer, Post, Refused, Unavailable
from trial_runner.runner.delivery import Undelivered
from trial_runner.runner.posts import Stream
from trial_runner.wire import foreign_files
from trial_runner.wire.outbox_name import file_name, file_of

_TOO_LARGE = 413
_SMALLEST_CHUNK = 1024
#: Seconds for which results wait for company: the last one, as a rule, for the end of the command.
_GATHER_S = 0.05


class OutboxForward(Stream):
    """`stored`: bytes that the manager has of each outbox."""

    def __init__(self, outboxes: Outboxes, folder: str, stored: Dict[str, int], undelivered: Undelivered) -> None:
        super().__init__()
        self._outboxes = outboxes
        self._outboxes.chunk_bytes = protocol.MAX_METRICS_POST
        self._undelivered = undelivered
        self._shifts = {name: max(0, size - _size(folder, file_of(name, stored))) for name, size in stored.items()}
        self._outboxes.rewind({name: size - self._shifts[name] for name, size in stored.items()})
        #: What is known to be stored, of each outbox.
        self.stored = dict(stored)
        self._given_up: Set[str] = set()
        #: The file that the pending chunk is of.
        self._latest = ""
        self._pending: Optional[OutboxRecords] = None
        #: Outboxes found at the last look that are still to be sent in this round.
        self._round: List[str] = []
        self._has_changed = True
        #: When what has changed is looked at, by the monotonic clock.
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
            offset = answer().get("offset")
        except Refused as error:
            self._on_refused(chunk, error)
            return
        except Unavailable as error:
            if error.status != _TOO_LARGE or not self._can_be_smaller(chunk):
                raise
            self._make_smaller(chunk)  # for a proxy in between
            return
        if not isinstance(offset, int):
            raise Unavailable("the manager did not say what it stored of {}".format(chunk.outbox))
        self._on_stored(chunk, offset)

    def give_up(self) -> None:
        super().give_up()
        self._undelivered.add("Time was up before all results were delivered: the rest stays in the trial's folder.")

    @property
    def is_last(self) -> bool:
        """False also where the files do not simply say it: what became other ones, and too many to count."""
        if self._round:
            return False
        read, there = self._outboxes.offsets(), self._outboxes.sizes()
        is_plain = set(read) <= set(there) and len(there) < protocol.MOST_OUTBOXES and not self._given_up
        return is_plain and all(size == read.get(name, 0) for name, size in there.items())

    def sizes(self) -> Dict[str, int]:
        """The bytes of the first outboxes that are stored once what is under way is: all of
        thousands would make too large a post."""
        sizes = dict(self.stored)
        if self._pending is not None and not self.is_given_up:
            sizes[self._pending.outbox] = self._pending.end + self._shifts.get(self._pending.outbox, 0)
        return dict(sorted(sizes.items())[: protocol.MOST_OUTBOXES])

    def _next_chunk(self) -> Optional[OutboxRecords]:
        """The next chunk: of each outbox once before any is served again; the folder is listed once for each round."""
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
            raise Unavailable("the manager has {} only to byte {}".format(chunk.outbox, offset))

    def _on_refused(self, chunk: OutboxRecords, error: Refused) -> None:
        if error.status == _TOO_LARGE and self._can_be_smaller(chunk):
            self._make_smaller(chunk)
        elif error.status == _TOO_LARGE and chunk.lines:
            self._undelivered.add("{} has a record that is too large for the manager at offset {}".format(*chunk[:2]))
            self._pending = chunk._replace(lines=[protocol.TOO_LONG] if chunk.lines != [protocol.TOO_LONG] else [])
        else:
            sentence = "The manager refuses {} ({}): it stays in the trial's folder."
            self._undelivered.add(sentence.format(chunk.outbox, error))
            self._given_up.add(self._latest)  # the file, whatever outbox it is by now
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
