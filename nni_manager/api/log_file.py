"""A stretch of a log file as an answer. The file may grow, shrink or be replaced by its writer at any moment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiofiles
from fastapi.responses import StreamingResponse

from nni_manager.domain.errors import NotFound
from nni_manager.domain.job import JobHandle
from nni_manager.scheduler import job_logs
from nni_manager.scheduler.job_logs import ReadFile
from trial_runner.wire import foreign_files

_CHUNK = 256 * 1024


async def stretch(folder: Path, name: str, offset: int, limit: int | None) -> StreamingResponse:
    """At most `limit` bytes from `offset` (negative: from the end), up to what the file holds now.

    `name`: with slashes where it lies deeper; links are not followed.

    Headers: ``X-Offset``, where it starts; ``X-Size``, bytes the file holds. Raises NotFound.
    """
    size = await asyncio.to_thread(_size, folder, name)
    return _answer(size, offset, limit, lambda start, end: _read(folder, name, start, end))


async def stretch_elsewhere(
    handle: JobHandle, read_file: ReadFile, name: str, offset: int, limit: int | None
) -> StreamingResponse:
    """The same of a job that its training service is asked about. Raises NotFound or PlatformUnavailable."""
    return _answer(
        await job_logs.size(handle, name, read_file), offset, limit,
        lambda start, end: _ask(handle, read_file, name, start, end),
    )  # fmt: skip


def _answer(
    size: int, offset: int, limit: int | None, read: Callable[[int, int], AsyncIterator[bytes]]
) -> StreamingResponse:
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    end = size if limit is None else min(size, start + limit)
    headers = {"X-Offset": str(start), "X-Size": str(size), "Cache-Control": "no-store"}
    return StreamingResponse(read(start, end), media_type="text/plain; charset=utf-8", headers=headers)


async def _ask(handle: JobHandle, read_file: ReadFile, name: str, position: int, end: int) -> AsyncIterator[bytes]:
    while position < end and (data := await read_file(handle, name, position, min(_CHUNK, end - position))):
        position += len(data)
        yield data


async def _read(folder: Path, name: str, position: int, end: int) -> AsyncIterator[bytes]:
    async with aiofiles.open(name, "rb", opener=lambda name, _: foreign_files.open_file(str(folder), name)) as file:
        await file.seek(position)
        while position < end and (data := await file.read(min(_CHUNK, end - position))):
            position += len(data)
            yield data


def _size(folder: Path, name: str) -> int:
    try:
        return foreign_files.size(str(folder), name)
    except OSError:
        raise NotFound(f"there is no {os.path.basename(name)} yet, or it was removed") from None
