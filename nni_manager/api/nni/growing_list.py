"""Caches of lists that only grow at their end, which NNI's clients poll as a whole.

Items before the first one that may still change are assembled by SQLite once and cached while the experiment is open:
ten thousand trials are then as fast as ten. A closed experiment does not change: its whole list is cached while its
database is open, within a limit for all closed experiments.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nni_manager.scheduler.experiments.closed import ClosedExperiment
from nni_manager.scheduler.experiments.commands import Readable

#: Most cached bytes of one list of an open experiment.
MOST_KEPT = 64 * 1024 * 1024
#: Most cached bytes of all lists of closed experiments.
MOST_KEPT_OF_CLOSED = 64 * 1024 * 1024
#: Most pieces of a cached list; above it they are joined.
_MOST_PIECES = 64


class Rows(Protocol):
    """Items as JSON text joined by commas, in the order of a growing id."""

    def settled(self, connection: sqlite3.Connection) -> int:
        """An id below which items no longer change and none is added."""

    def items(self, connection: sqlite3.Connection, *, start: int, end: int) -> bytes:
        """The items with ids in [start, end); empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    #: The first id that is not included.
    end: int = 0
    pieces: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def plus(self, piece: bytes, end: int) -> _Kept:
        pieces = (*self.pieces, piece) if piece else self.pieces
        if len(pieces) > _MOST_PIECES:
            pieces = (b",".join(pieces),)
        return _Kept(end=end, pieces=pieces)


class Room:
    """An LRU cache of the lists of closed experiments, limited by bytes."""

    def __init__(self, size: int) -> None:
        self._free = size
        #: List → its bytes, in order of last use.
        self._lists: OrderedDict[GrowingList, int] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, used: GrowingList, size: int) -> None:
        """Makes `used` the most recent, and evicts the least recently used lists above the limit."""
        with self._lock:
            self._free += self._lists.pop(used, 0) - size
            self._lists[used] = size
            while self._free < 0:
                oldest, its_size = self._lists.popitem(last=False)
                self._free += its_size
                oldest.forget()


class GrowingLists:
    """One cached list per experiment."""

    def __init__(self, rows: Callable[[Readable], Rows], room: Room, *, end: int) -> None:
        """`room`: for closed experiments; `end`: above every id."""
        self._rows = rows
        self._room = room
        self._end = end
        self._lists: WeakKeyDictionary[Readable, GrowingList] = WeakKeyDictionary()

    def of(self, read: Readable) -> GrowingList:
        found = self._lists.get(read)
        if found is None:
            room = self._room if isinstance(read, ClosedExperiment) else None
            found = self._lists[read] = GrowingList(self._rows(read), end=self._end, room=room)
        return found


class GrowingList:
    """A cached list. Thread-safe."""

    def __init__(self, rows: Rows, *, end: int, room: Room | None = None) -> None:
        """`end`: above every id. `room`: for a closed experiment, which no longer changes."""
        self._rows = rows
        self._end = end
        self._room = room
        self._kept = _Kept()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Drops the cached list; the next read assembles it again."""
        self._kept = _Kept()

    def read(self, connection: sqlite3.Connection) -> Sequence[bytes]:
        """The pieces of the list, to be joined by commas."""
        if self._room is not None:
            return self._read_whole(connection, self._room)
        connection.execute("BEGIN")  # one snapshot for both queries
        try:
            kept = self._extended(connection)
            rest = self._rows.items(connection, start=kept.end, end=self._end)
        finally:
            connection.execute("ROLLBACK")
        return (*kept.pieces, rest) if rest else kept.pieces

    def _read_whole(self, connection: sqlite3.Connection, room: Room) -> Sequence[bytes]:
        kept = self._kept
        if not kept.end:
            kept = kept.plus(self._rows.items(connection, start=0, end=self._end), self._end)
            self._kept = kept
        room.use(self, kept.size)
        return kept.pieces

    def _extended(self, connection: sqlite3.Connection) -> _Kept:
        kept, settled = self._kept, self._rows.settled(connection)
        if settled <= kept.end:
            return kept
        kept = kept.plus(self._rows.items(connection, start=kept.end, end=settled), settled)
        with self._lock:
            if kept.end > self._kept.end and kept.size <= MOST_KEPT:
                self._kept = kept
        return kept


class ListResponse(Response):
    """A JSON list, sent in its cached pieces without copying."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        size = sum(map(len, pieces)) + max(0, len(pieces) - 1) + 2
        super().__init__(headers={"Content-Type": "application/json; charset=utf-8", "Content-Length": str(size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._framed():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"]", "more_body": False})

    def _framed(self) -> Iterator[bytes]:
        yield b"["
        for number, piece in enumerate(self._pieces):
            if number:
                yield b","
            yield piece
