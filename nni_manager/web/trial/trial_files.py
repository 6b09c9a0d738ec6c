"""The files in an attempt's folder on this machine: a list, and each as a download."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import attempt_directory
from nni_manager.scheduler.experiments.attempt_logs import FileHere
from trial_runner.wire import foreign_files

#: Most files in the list of a page.
_MOST = 200
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file below an attempt's folder."""

    #: Its path below the folder, as people read it.
    name: str
    #: The same, quoted for an address.
    quoted: str
    size: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFiles:
    files: tuple[ListedFile, ...] = ()
    #: How many there are besides.
    others: int = 0


async def listed(trials: Path, trial_id: str, attempt: int) -> ListedFiles:
    """The files of an attempt; none where its folder is not on this machine."""
    return await asyncio.to_thread(_listed, str(trials), attempt_directory(trial_id, attempt))


def _listed(trials: str, folder: str) -> ListedFiles:
    names = foreign_files.listing(trials, folder).files
    sizes = ((name, _size(trials, name)) for name in names[:_MOST])
    found = [_file(name.removeprefix(f"{folder}/"), size) for name, size in sizes if size is not None]
    return ListedFiles(files=tuple(found), others=max(0, len(names) - _MOST))


def _file(name: str, size: int) -> ListedFile:
    readable = name.encode("utf-8", "backslashreplace").decode()
    return ListedFile(name=readable, quoted=quote(name, errors="surrogateescape"), size=in_bytes(size))


def _size(trials: str, name: str) -> int | None:
    try:
        return foreign_files.size(trials, name)
    except OSError:
        return None  # removed meanwhile


def in_bytes(size: int) -> str:
    """``512 B``, ``12.3 kB``, ``4.0 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000  # type: ignore[assignment]
    return f"{size} B" if unit == "B" else f"{size:.1f} {unit}"


async def download(trials: Path, trial_id: str, attempt: int, name: str) -> Response:
    """A file as it is now, never shown as a page. Raises NotFound."""
    file = FileHere(trials, f"{attempt_directory(trial_id, attempt)}/{name}")
    if any(part.startswith(".") for part in name.split("/")):
        raise NotFound(f"there is no file {name!r} in the list")
    size = await file.size()
    last = quote(name.rpartition("/")[2], safe="", errors="surrogateescape")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{last}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(_chunks(file, size), media_type="application/octet-stream", headers=headers)


async def _chunks(file: FileHere, end: int) -> AsyncIterator[bytes]:
    position = 0
    while position < end and (data := await file.read(position, min(_CHUNK, end - position))):
        position += len(data)
        yield data
