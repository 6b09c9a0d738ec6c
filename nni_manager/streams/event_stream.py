"""Server-sent events about a changing subject. Changes within `PAUSE_S` are sent together."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nni_manager.domain.errors import NniManagerError
from nni_manager.platform_kit.tasks import happened

#: Least seconds between two parts; seconds of silence after which a comment is sent as a keep-alive.
PAUSE_S = 0.2
HEARTBEAT_S = 15.0
_COMMENT = ":\n\n"
#: Line ends for many libraries, but not for events; users' names and values may contain them.
_SEPARATORS = {number: f"\\u{number:04x}" for number in (0x85, 0x2028, 0x2029)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Text of events, made by `event`; may be empty."""

    text: str
    #: No further part follows.
    is_last: bool
    #: The next part is available at once.
    has_more: bool = False


def event(kind: str, data: str, id: int | None = None) -> str:
    """The text of an event. `data`: JSON on one line; `id`: sent back as Last-Event-ID when the client reconnects."""
    line = data if data.isascii() else data.translate(_SEPARATORS)
    return f"event: {kind}\ndata: {line}\n" + (f"id: {id}\n" if id is not None else "") + "\n"


def last_event_id(request: Request) -> int | None:
    """The Last-Event-ID of a client that reconnects, or None."""
    given = request.headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else None


class Subject(Protocol):
    """The subject of a stream."""

    def watch(self) -> AbstractContextManager[asyncio.Event]:
        """An event that every change sets from now on."""

    async def read(self) -> Part:
        """The changes since the last call."""


class EventStream(Response):
    """A stream of events. It ends, with all its tasks, with the subject, the client's connection or `stopping`."""

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(self, subject: Subject, stopping: asyncio.Event) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._subject = subject
        self._stopping = stopping
        self._over = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        with self._subject.watch() as news:
            async with asyncio.TaskGroup() as group:
                enders = [
                    group.create_task(self._end_with_client(receive, news), name="stream: client"),
                    group.create_task(self._end_with_daemon(news), name="stream: daemon"),
                ]
                await self._send_parts(send, news)
                for ender in enders:
                    ender.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_parts(self, send: Send, news: asyncio.Event) -> None:
        if_empty = _COMMENT  # makes a proxy that waits for a body pass the headers on
        while not self._over.is_set():
            news.clear()
            part = await self._send_part(send, if_empty)
            if_empty = ""
            if part.is_last:
                return
            if part.has_more:
                continue
            await happened(self._over, asyncio.timeout(PAUSE_S))
            while not await happened(news, asyncio.timeout(HEARTBEAT_S)):
                await _write(send, _COMMENT)

    async def _send_part(self, send: Send, if_empty: str) -> Part:
        try:
            part = await self._subject.read()
        except NniManagerError:  # deleted or currently unreadable; the client reconnects and gets the reason
            return Part(text="", is_last=True)
        if text := part.text or if_empty:
            await _write(send, text)
        return part

    async def _end_with_client(self, receive: Receive, news: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._end(news)

    async def _end_with_daemon(self, news: asyncio.Event) -> None:
        await self._stopping.wait()
        self._end(news)

    def _end(self, news: asyncio.Event) -> None:
        self._over.set()
        news.set()


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
