"""Limits the memory for bodies of trial runners that are being received.

Received bytes count, not announced ones. Small bodies are always accepted, so that no heartbeat waits for another
runner's results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from nni_manager.domain.errors import TooBusy

#: Most bytes of a small body, such as a usual post of lines.
SMALL_BYTES = 512 * 1024
#: Most simultaneous bodies of one attempt, one for each of its reporting processes.
MOST_BODIES = 64


class Room:
    """`size`: most bytes of all large bodies together."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._bodies: Counter[str] = Counter()
        #: Attempts with a large body that is being received.
        self._large: set[str] = set()

    @contextmanager
    def body(self, attempt: str) -> Iterator[Body]:
        """A context in which a body is received and used. Raises TooBusy."""
        if self._bodies[attempt] >= MOST_BODIES:
            raise TooBusy(f"{MOST_BODIES} posts of this attempt are being taken in; this one is taken in a second")
        self._bodies[attempt] += 1
        body = Body(self, attempt)
        try:
            yield body
        finally:
            body.end()
            self._bodies[attempt] -= 1
            if not self._bodies[attempt]:
                del self._bodies[attempt]

    def enlarge(self, attempt: str) -> None:
        """Counts the attempt's body as large from now on. Raises TooBusy."""
        if attempt in self._large:
            raise TooBusy("another large post of this attempt is being taken in; this one is taken in a second")
        self._large.add(attempt)

    def take(self, size: int, held: int) -> None:
        """Reserves `size` bytes. `held`: bytes the body has already; a single body always has room. Raises TooBusy."""
        if self._taken + size > self._size and self._taken > held:
            raise TooBusy("more comes in than can be taken in at a time; it is taken in a second")
        self._taken += size

    def give_back(self, attempt: str, held: int) -> None:
        """Releases the attempt's large body."""
        self._large.discard(attempt)
        self._taken -= held


class Body:
    """One body while it is received."""

    def __init__(self, room: Room, attempt: str) -> None:
        self._room = room
        self._attempt = attempt
        self._size = 0
        self._is_large = False
        #: Bytes reserved in the room.
        self._held = 0

    def grow(self, size: int) -> None:
        """Counts received bytes. Raises TooBusy: the rest of the body must not be read then."""
        self._size += size
        if self._size <= SMALL_BYTES:
            return
        if not self._is_large:
            self._room.enlarge(self._attempt)
            self._is_large = True
        more = self._size - self._held
        self._room.take(more, self._held)
        self._held += more

    def end(self) -> None:
        if self._is_large:
            self._room.give_back(self._attempt, self._held)
