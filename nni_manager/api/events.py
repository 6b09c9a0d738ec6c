"""An experiment's changes as a stream of server-sent events. Many changes in a short time are one event."""

from __future__ import annotations

import asyncio
from asyncio import Event
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from fastapi import APIRouter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nni_manager.api import experiment_description as description
from nni_manager.api.context import ApiContext, Context, ExperimentId
from nni_manager.api.errors import documented
from nni_manager.domain.errors import NniManagerError

#: Seconds between two events at least, and of silence after which a comment says that the stream is alive.
PAUSE_S = 0.2
HEARTBEAT_S = 15.0


class Subject(Protocol):
    """The thing whose changes are streamed."""

    def watch(self) -> AbstractContextManager[asyncio.Event]:
        """An event that is set by every change, from now on."""

    async def read(self) -> tuple[str, bool]:
        """The state as JSON on one line, and whether there will be no other."""


class EventStream(Response):
    """Ends when the subject is over, the client goes away or `stopping` is set, and leaves no task behind."""

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
                await self._send_states(send, news)
                for ender in enders:
                    ender.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_states(self, send: Send, news: asyncio.Event) -> None:
        while not self._over.is_set():
            news.clear()
            if await self._send_state(send):
                return
            await _happened(self._over, PAUSE_S)
            while not await _happened(news, HEARTBEAT_S):
                await _write(send, ":\n\n")

    async def _send_state(self, send: Send) -> bool:
        """Answers whether it was the last one."""
        try:
            state, is_last = await self._subject.read()
        except NniManagerError:  # it was deleted, or cannot be read now: the client asks again, and is told why
            return True
        await _write(send, f"event: state\ndata: {state}\n\n")
        return is_last

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


async def _happened(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


router = APIRouter(prefix="/api/v1/experiments/{id}/events", tags=["experiments"])

_ANSWER = {
    200: {
        "description": "Server-sent events called `state`, at most five a second. The data of each is the JSON of an "
        "`Experiment` without its `config`. A comment comes every 15 seconds of silence.",
        "content": {"text/event-stream": {"schema": {"type": "string", "description": "Server-sent events."}}},
    },
    **documented(404, 503),
}


@router.get(
    "",
    operation_id="followExperiment",
    summary="Follow an experiment",
    response_class=EventStream,
    status_code=200,
    responses=_ANSWER,
)
async def follow(id: ExperimentId, context: Context) -> EventStream:
    """Ends after the last state when the experiment is closed, and when the daemon ends."""
    await description.state(context, id)  # refusals are answers of their own, not events
    return EventStream(_Experiment(context, id), context.stopping)


class _Experiment:
    """One experiment as the subject of an `EventStream`."""

    def __init__(self, context: ApiContext, id: str) -> None:
        self._context = context
        self._id = id

    @contextmanager
    def watch(self) -> Iterator[Event]:
        """An event that is set by every change; never, for one that nobody works on."""
        experiment = self._context.service.at_work(self._id)
        if experiment is None:
            yield Event()
            return
        with experiment.changes.watch() as news:
            yield news

    async def read(self) -> tuple[str, bool]:
        """Its state as JSON, and whether there will be no other."""
        is_over = self._context.service.at_work(self._id) is None
        state = await description.state(self._context, self._id)
        return state.json_text(), is_over or state.status.is_closed
