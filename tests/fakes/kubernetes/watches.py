"""Watches: changes after a resource version, one JSON object per line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tests.fakes.kubernetes import refusals, requests, selectors
from tests.fakes.kubernetes.faults import Fault
from tests.fakes.kubernetes.requests import Target
from tests.fakes.kubernetes.store import Change, Object, Store


class Watches:
    """All open watches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: set[asyncio.Queue[Change | None]] = set()
        #: If set, watches get no changes.
        self.deaf = False
        #: Seconds between bookmarks, for watches that allow them.
        self.bookmark_every = 10.0
        #: Number of watches ever opened, by resource.
        self.opened: dict[str, int] = {}

    def _hear(self, change: Change, key: str, queue: asyncio.Queue[Change | None]) -> None:
        if change.key == key and not self.deaf:
            queue.put_nowait(change)

    def break_all(self) -> None:
        """Cut all open watches."""
        for queue in self._open:
            queue.put_nowait(None)

    async def answer(self, request: web.Request, target: Target, fault: Fault | None) -> web.StreamResponse:
        watch = _Watch(self._store, request, target)
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        start = watch.start()  # may refuse before anything is sent
        stop = self._store.listen(lambda change: self._hear(change, target.kind.key, queue))
        self._open.add(queue)
        self.opened[target.kind.key] = self.opened.get(target.kind.key, 0) + 1
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            async with asyncio.timeout(watch.seconds):
                await self._send(response, watch.lines(start, queue, self.bookmark_every), fault)
        except TimeoutError:
            pass
        except ConnectionError:
            return response
        finally:
            stop()
            self._open.discard(queue)
        if request.transport is not None and watch.broken:
            request.transport.abort()
        return response

    async def _send(self, response: web.StreamResponse, lines: AsyncIterator[bytes], fault: Fault | None) -> None:
        sent = 0
        if fault is None:
            async for line in lines:
                await response.write(line)
            return
        while fault.watch_events < 0 or sent < fault.watch_events:
            line = await anext(lines, None)
            if line is None:
                return
            await asyncio.sleep(fault.watch_delay)
            await response.write(line)
            sent += 1
        if fault.watch_gone:
            await response.write(_line("ERROR", refusals.too_old(1, self._store.revision).status()))
        elif fault.watch_garbage:
            await response.write(b'{"type": "MODIFIED", "object": {"metada')


class _Watch:
    """A watch: its objects, start and duration."""

    def __init__(self, store: Store, request: web.Request, target: Target) -> None:
        self._store, self._target = store, target
        query = request.query
        fields = query.get("fieldSelector", "")
        if target.name:
            fields = f"metadata.name={target.name}"
        self._has_labels = selectors.labels(query.get("labelSelector", ""))
        self._has_fields = selectors.fields(fields, target.kind.key)
        self._version = query.get("resourceVersion", "")
        self._bookmarks = requests.flag(request, "allowWatchBookmarks")
        self._initial = requests.flag(request, "sendInitialEvents")
        self.seconds = requests.whole(request, "timeoutSeconds") or 2_400
        self.broken = False

    def start(self) -> list[bytes]:
        """The initial events."""
        if self._initial and not self._bookmarks:
            raise refusals.bad_request("allowWatchBookmarks is required when sendInitialEvents is set")
        if self._version in ("", "0") or self._initial:
            lines = [_line("ADDED", obj) for obj in self._all() if self._fits(obj)]
            return [*lines, self._bookmark(initial=True)] if self._initial else lines
        asked = self._asked()
        if asked < self._store.compacted:
            return [_line("ERROR", refusals.too_old(asked, self._store.compacted).status()), b""]
        changes = self._store.since(asked, self._target.kind.key)
        return [line for change in changes if (line := self._told(change))]

    def _asked(self) -> int:
        try:
            return int(self._version)
        except ValueError as error:
            raise refusals.bad_request(f"Invalid value: {self._version!r}: resourceVersion must be a number") from error

    async def lines(
        self, start: list[bytes], queue: asyncio.Queue[Change | None], every: float
    ) -> AsyncIterator[bytes]:
        for line in start:
            if not line:
                return
            yield line
        while True:
            try:
                change = await asyncio.wait_for(queue.get(), every if self._bookmarks else None)
            except TimeoutError:
                if queue.empty():  # otherwise its version would be later than the sent events
                    yield self._bookmark()
                continue
            while True:  # send all pending events, or a watch would fall behind a busy server
                if change is None:
                    self.broken = True
                    return
                if line := self._told(change):
                    yield line
                if queue.empty():
                    break
                change = queue.get_nowait()

    def _all(self) -> list[Object]:
        return self._store.all(self._target.kind.key, self._target.namespace or None)

    def _told(self, change: Change) -> bytes | None:
        """The event for this watch: objects that start or stop matching are added or deleted."""
        if self._target.namespace and change.last["metadata"].get("namespace") != self._target.namespace:
            return None
        did = change.before is not None and self._fits(change.before)
        does = change.after is not None and self._fits(change.after)
        if did and does:
            return change.line("MODIFIED")
        if does:
            return change.line("ADDED")
        return change.line("DELETED") if did else None

    def _fits(self, obj: Object) -> bool:
        return self._has_labels(obj) and self._has_fields(obj)

    def _bookmark(self, initial: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = self._target.kind
        return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})


def _line(event: str, obj: Object) -> bytes:
    return json.dumps({"type": event, "object": obj}).encode() + b"\n"
