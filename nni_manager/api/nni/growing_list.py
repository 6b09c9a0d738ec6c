"""Lists that only grow at their end, as NNI's clients ask for them again and again: the whole of it, every time.

What precedes the first item that may still change is assembled by SQLite once and kept as long as the experiment is at
work: ten thousand trials are then as quick as ten. Of an experiment that nobody works on nothing is kept.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Bytes of one list that are kept at most.
MOST_KEPT = 64 * 1024 * 1024
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


class GrowingList:
    """Read by several threads at a time."""

    def __init__(self, rows: Rows, *, end: int) -> None:
        """`end`: above every id."""
        self._rows = rows
        self._end = end
        self._kept = _Kept()
        self._lock = threading.Lock()

    def read(self, connection: sqlite3.Connection) -> Sequence[bytes]:
        """The pieces of the list; joined by commas they are its items."""
        connection.execute("BEGIN")  # one picture for both queries
        try:
            kept = self._extended(connection)
            rest = self._rows.items(connection, start=kept.end, end=self._end)
        finally:
            connection.execute("ROLLBACK")
        return (*kept.pieces, rest) if rest else kept.pieces

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
