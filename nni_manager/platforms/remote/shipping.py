"""Prepares a machine for trials: sends the experiment's code, or checks its shared storage.

The code is sent once, in pieces, each after the previous one has arrived, so that results and job starts of other
experiments can pass between pieces.

A program on the machine checks, mounts and unmounts shared storage. The keeper does not access it, as every access
blocks while the file server is down. The program logs in separately: a server may allow only one session per login.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import first_line
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.machine import Machine
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import ANSWER_S, REMOTE_FIELD, Mark, MountAnswer, answer_of


async def ask(entry: Entry, text: str) -> MountAnswer:
    """The answer of a machine about shared storage. `text`: from `SharedFolder.program_elsewhere`.

    Raises MachineFault or PlatformUnavailable.
    """
    try:
        return answer_of(await first_line(entry, text, ANSWER_S))
    except ValueError as error:
        raise PlatformUnavailable(f"{REMOTE_FIELD}: the check failed ({error})", refused=True) from error


async def use_storage(entry: Entry, shared: SharedFolder, mark: Mark) -> str:
    """Ensures that a machine has mounted the storage and sees the marker file; returns the absolute path. Raises
    PlatformError."""
    answer = await _asked(entry, shared.program_elsewhere("use", mark))
    answer.require(REMOTE_FIELD)
    return answer.point


async def leave_storage(entry: Entry, shared: SharedFolder) -> str:
    """Unmounts storage that we mounted on a machine for the experiment; returns the reason of a failure, or empty.

    Raises PlatformError.
    """
    return (await _asked(entry, shared.program_elsewhere("leave"))).sentence


async def _asked(entry: Entry, text: str) -> MountAnswer:
    try:
        return await ask(entry, text)
    except MachineFault as error:
        raise error.fault.error(entry.address.host) from error


_PIECE_BYTES = 256 * 1024


async def ship(machine: Machine, archive: Path, target: str, tell: Callable[[int, int], None]) -> None:
    """Sends an archive to a machine. `tell`: called with the number of bytes sent, and the total.

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
