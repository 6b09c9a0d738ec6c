"""The code of an experiment on its way to a machine: once, in pieces, each asked for when the last one has arrived.

Results come the other way meanwhile, and starts of other experiments' jobs pass between two pieces.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

from nni_manager.machines.ssh.machine import Machine

_PIECE_BYTES = 256 * 1024


async def ship(machine: Machine, archive: Path, target: str, tell: Callable[[int, int], None]) -> None:
    """Sends an archive to a machine. `tell`: called with the bytes that are there, and how many there are in all.

    Raises PlatformError, OSError.
    """
    size = await asyncio.to_thread(lambda: archive.stat().st_size)
    there = await machine.put(target, size, 0, "")
    while there < size:
        tell(there, size)
        there = await machine.put(target, size, there, await asyncio.to_thread(_piece, archive, there))


def _piece(archive: Path, offset: int) -> str:
    with archive.open("rb") as file:
        file.seek(offset)
        return base64.b64encode(file.read(_PIECE_BYTES)).decode()
