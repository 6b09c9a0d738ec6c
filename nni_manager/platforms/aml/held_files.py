"""Files that a command holds open, as a listing of the workspace's storage shows them.

An output is uploaded when it is closed. Of what is open the runner copies pieces, which it closes::

    ATTEMPT/stdout                       whole, once the command has ended
    ATTEMPT/pieces/CONTAINER/stdout/N    while it runs: its bytes from N times PIECE_BYTES on
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from trial_runner import protocol

_PREFIX = f"{protocol.PIECES_FOLDER}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFile:
    """A log or an outbox. `whole`: its size in bytes under its own name; None: it is not uploaded yet."""

    name: str
    whole: int | None
    #: Number of a piece → (its name, its bytes).
    pieces: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes that can be read."""
        ends = (number * protocol.PIECE_BYTES + size for number, (_, size) in self.pieces.items())
        return max(self.whole or 0, *ends, 0)

    def source(self, start: int) -> tuple[str, int] | None:
        """The blob that has the byte `start`, and where in it; None: none has."""
        if start < (self.whole or 0):
            return self.name, start
        number, offset = divmod(start, protocol.PIECE_BYTES)
        name, size = self.pieces.get(number, ("", 0))
        return (name, offset) if offset < size else None


def containers(sizes: Mapping[str, int]) -> set[str]:
    """The containers that have left pieces."""
    return {name.split("/")[1] for name in sizes if name.startswith(_PREFIX)}


def container_in(registration: bytes) -> str:
    """The id of the container in a registration; empty: it has none."""
    try:
        found = json.loads(registration).get("container")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def pieces_of(sizes: Mapping[str, int], container: str) -> dict[str, dict[int, tuple[str, int]]]:
    """The pieces of each file of a container."""
    found: dict[str, dict[int, tuple[str, int]]] = {}
    prefix = f"{_PREFIX}{container}/"
    for blob, size in sizes.items():
        if container and blob.startswith(prefix):
            name, _, number = blob.removeprefix(prefix).rpartition("/")
            if number.isascii() and number.isdigit():
                found.setdefault(name, {})[int(number)] = (blob, size)
    return found


def whole_and_held(
    sizes: Mapping[str, int], held: Mapping[str, Mapping[int, tuple[str, int]]], is_read: Callable[[str], bool]
) -> Iterator[HeldFile]:
    """The files of which something can be read. `is_read`: whether a name is that of a file that runners write."""
    for name in sorted({*sizes, *held}):
        if is_read(name):
            yield HeldFile(name=name, whole=sizes.get(name), pieces=held.get(name, {}))
