"""Logs of remote jobs: read from their service while it keeps them; the end of each is copied here."""

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
#: Bytes copied from the end of each log.
KEPT_BYTES = 1024 * 1024


async def keep(trials: Path, handles: Sequence[JobHandle], read_file: ReadFile, most_bytes: int) -> None:
    """Copies the end of each log into the attempts' folders below `trials`, unless keeper or runner wrote them.

    `most_bytes`: for all logs of an attempt. Raises PlatformUnavailable; after other failures the log is missing.
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
            except Exception as error:  # a missing log must not block forgetting
                log.warning("%s of job %s is not kept: %s", name, handle.job_name, error)


def _without_logs(trials: Path, handles: Sequence[JobHandle]) -> list[JobHandle]:
    """The jobs without a local stdout file, which keeper and runner write first."""
    return [one for one in handles if not os.path.lexists(trials / attempt_directory_of(one.job_name) / STDOUT_FILE)]


def _write(folder: Path, name: str, data: bytes) -> None:
    """Writes a file atomically, without following a link at its path."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{name}.kept"
    draft.unlink(missing_ok=True)
    with open(draft, "xb") as file:
        file.write(data)
    draft.replace(folder / name)


async def size(handle: JobHandle, name: str, read_file: ReadFile) -> int:
    """Size of a log in bytes: one read for small logs, a search for large ones. Raises NotFound,
    PlatformUnavailable."""
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
