"""Logs of jobs elsewhere: read from their service while it keeps them, and the last of each kept here."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobHandle
from trial_runner.protocol import LOG_FILES, STDOUT_FILE

log = logging.getLogger(__name__)

#: As `Platform.read_file`.
ReadFile = Callable[[JobHandle, str, int, int], Awaitable[bytes]]
#: So much of the end of each log is kept, in bytes.
KEPT_BYTES = 1024 * 1024


async def keep(trials: Path, handles: Sequence[JobHandle], read_file: ReadFile, most_bytes: int) -> None:
    """Copies the last of each log into the attempts' folders below `trials`, unless keeper or runner wrote them there.

    `most_bytes`: of all logs of an attempt. Raises PlatformUnavailable; other failures cost the log, and nothing else.
    """
    each = min(KEPT_BYTES, most_bytes // len(LOG_FILES))
    for handle in await asyncio.to_thread(_without_logs, trials, handles):
        for name in LOG_FILES:
            try:
                data = await read_file(handle, name, -each, each)
                await asyncio.to_thread(_write, trials / attempt_directory_of(handle.job_name), name, data[-each:])
            except NotFound:
                continue
            except PlatformUnavailable:
                raise
            except Exception as error:  # a log is worth less than that the job is forgotten
                log.warning("%s of job %s is not kept: %s", name, handle.job_name, error)


def _without_logs(trials: Path, handles: Sequence[JobHandle]) -> list[JobHandle]:
    """The jobs without logs here; whoever writes logs here begins with what the command prints."""
    return [one for one in handles if not os.path.lexists(trials / attempt_directory_of(one.job_name) / STDOUT_FILE)]


def _write(folder: Path, name: str, data: bytes) -> None:
    """Writes a file whole or not at all; never through what somebody has put in its place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.kept"
    draft.unlink(missing_ok=True)
    with open(draft, "xb") as file:
        file.write(data)
    draft.replace(folder / name)


async def size(handle: JobHandle, name: str, read_file: ReadFile) -> int:
    """Bytes that a log holds now: one question for most, few for large ones. Raises NotFound, PlatformUnavailable."""
    tail = len(await read_file(handle, name, -KEPT_BYTES, KEPT_BYTES))
    if tail < KEPT_BYTES:
        return tail
    low, high = 0, 2 * KEPT_BYTES  # the end is not before `low`
    while (found := len(await read_file(handle, name, high, KEPT_BYTES))) == KEPT_BYTES:
        low, high = high, 2 * high
    while not found and high - low > KEPT_BYTES:
        middle = (low + high) // 2
        found = len(await read_file(handle, name, middle, KEPT_BYTES))
        if found == KEPT_BYTES:
            low, found = middle, 0
        else:
            high = middle
    return high + found if found else low + len(await read_file(handle, name, low, 2 * KEPT_BYTES))
