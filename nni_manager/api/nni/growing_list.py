"""Lists that only grow at their end, as NNI's clients ask for them again and again: the whole of it, every time.

What precedes the first item that may still change is assembled by SQLite once and kept as long as the experiment is at
work: ten thousand trials are then as quick as ten. Of an experiment that nobody works on nothing changes: all is kept
as long as its database stays open, and no more than there is room for of all of them.
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

#: Bytes of one list of an experiment at work that are kept at most.
MOST_KEPT = 64 * 1024 * 1024
#: Bytes of all lists of experiments that nobody works on.
MOST_KEPT_OF_CLOSED = 64 * 1024 * 1024
#: Pieces that are kept at most: then they become one.
_MOST_PIECES = 64


class Rows(Protocol):
    """Items as JSON text joined by commas, in the order of an id that grows."""

    def settled(self, connection: sqlite3.Connection) -> int:
        """Items below this id neither change nor become more."""

    def items(self, connection: sqlite3.Connection, *, start: int, end: int) -> bytes:
        """The items with ids in [start, end); empty when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    #: The first id that is not in it.
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
    """The room for lists of closed experiments: those that were read last are kept, as far as they fit."""

    def __init__(self, size: int) -> None:
        self._free = size
        #: By last use, with their sizes.
        self._lists: OrderedDict[GrowingList, int] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, used: GrowingList, size: int) -> None:
        """`used` is the last to go. A list that is no longer anybody's goes as others come."""
        with self._lock:
            self._free += self._lists.pop(used, 0) - size
            self._lists[used] = size
            while self._free < 0:
                oldest, its_size = self._lists.popitem(last=False)
                self._free += its_size
                oldest.forget()


class GrowingLists:
    """The lists of all experiments that are read, one each."""

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
    """Read by several threads at a time."""

    def __init__(self, rows: Rows, *, end: int, room: Room | None = None) -> None:
        """`end`: above every id. `room`: of an experiment that is closed, and changes no more."""
        self._rows = rows
        self._end = end
        self._room = room
        self._kept = _Kept()
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Drops the list that is kept; it is assembled again when it is asked for."""
        self._kept = _Kept()

    def read(self, connection: sqlite3.Connection) -> Sequence[bytes]:
        """The pieces of the list; joined by commas they are its items."""
        if self._room is not None:
            return self._read_whole(connection, self._room)
        connection.execute("BEGIN")  # one picture for both queries
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
    """A JSON list that is sent in the pieces it was kept in, none of them copied."""

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
