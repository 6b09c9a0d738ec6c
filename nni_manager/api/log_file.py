"""A stretch of a log file as an answer. The file may grow, shrink or be replaced by its writer at any moment."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiofiles
from fastapi.responses import StreamingResponse

from nni_manager.domain.errors import NotFound

_CHUNK = 256 * 1024


async def stretch(path: Path, offset: int, limit: int | None) -> StreamingResponse:
    """At most `limit` bytes from `offset` (negative: from the end), up to what the file holds now.

    Headers: ``X-Offset``, where it starts; ``X-Size``, bytes the file holds. Raises NotFound.
    """
    size = await asyncio.to_thread(_size, path)
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    end = size if limit is None else min(size, start + limit)
    headers = {"X-Offset": str(start), "X-Size": str(size), "Cache-Control": "no-store"}
    return StreamingResponse(_read(path, start, end), media_type="text/plain; charset=utf-8", headers=headers)


async def _read(path: Path, position: int, end: int) -> AsyncIterator[bytes]:
    async with aiofiles.open(path, "rb", opener=_open_regular) as file:
        await file.seek(position)
        while position < end and (data := await file.read(min(_CHUNK, end - position))):
            position += len(data)
            yield data


def _size(path: Path) -> int:
    try:
        descriptor = _open_regular(str(path), os.O_RDONLY)
    except OSError:
        raise NotFound(f"there is no {path.name} yet, or it was removed") from None
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _open_regular(path: str, flags: int) -> int:
    """Trials own these folders: a link would lead out of them, a pipe would never answer."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(path)
