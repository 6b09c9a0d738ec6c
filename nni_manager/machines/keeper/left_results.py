"""Results in the folder of a job that its keeper does not know.

Either the keeper's files are gone, or it has forgotten the job and an older copy of the database was restored.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from nni_manager.domain.errors import SubmitRejected
from trial_runner import protocol
from trial_runner.wire.outbox_files import cut_frames, cut_lines, is_outbox, newest_name, spelled

#: Bytes per read.
_PIECE_BYTES = 1024 * 1024


class Request(Protocol):
    """A request to the keeper."""

    async def __call__(self, verb: str, **arguments: Any) -> Any: ...


class LeftLines(NamedTuple):
    """Complete records of an outbox between two byte offsets."""

    outbox: str
    start: int
    end: int
    lines: list[str]


async def left_lines(request: Request, folder: str, stored: Mapping[str, int]) -> AsyncIterator[LeftLines]:
    """The unstored part of the outboxes in an attempt's `folder` on the keeper's machine; the job has ended.

    `stored`: number of stored bytes of each outbox. Raises PlatformUnavailable.
    """
    try:
        listed = (await request("files", attempt_directory=folder))["files"]
    except SubmitRejected:  # a folder that the keeper does not read
        return
    for file in [name for name in listed if is_outbox(spelled(name))] + [protocol.METRICS_FILE]:
        outbox = newest_name(spelled(file), stored)
        with suppress(SubmitRejected):  # missing or unreadable
            async for part in _records(request, folder, file, outbox, stored.get(outbox, 0)):
                yield part


async def _records(request: Request, folder: str, file: str, outbox: str, start: int) -> AsyncIterator[LeftLines]:
    cut = cut_frames if file == protocol.METRICS_FILE else cut_lines
    data, is_all = b"", False
    while not is_all and len(data) <= protocol.MAX_RECORD:
        place = {"attempt_directory": folder, "file": file, "offset": start + len(data)}
        piece = base64.b64decode((await request("read", limit=_PIECE_BYTES, **place))["data"])
        data, is_all = data + piece, not piece
        records = cut(data, is_all)
        if records.length:
            yield LeftLines(outbox, start, start + records.length, records.texts)
        data, start = data[records.length :], start + records.length
