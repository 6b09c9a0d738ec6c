"""Work that events request, at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

log = logging.getLogger(__name__)

#: Seconds for the work to end when the loop is closed.
_PATIENCE_S = 5.0
#: Starts a task, which ends with the experiment's loop.
Start = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class Paced:
    """Runs `work` after a request: at once, then at most once in `every_s` seconds, and again after the last request.
    An exception is logged, and ends only that run."""

    def __init__(self, work: Callable[[], Awaitable[None]], name: str, every_s: float = 1.0) -> None:
        self._work = work
        self._name = name
        self._every_s = every_s
        self._is_asked = False
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def ask(self, start: Start) -> None:
        self._is_asked = True
        if self._task is None or self._task.done():
            self._task = start(self._run(), self._name)

    async def close(self) -> None:
        """Runs requested work without waiting, and returns after it. A disk that does not answer is given up after
        `_PATIENCE_S`."""
        self._closing.set()
        if self._task is not None:
            _, unfinished = await asyncio.wait({self._task}, timeout=_PATIENCE_S)
            for task in unfinished:
                task.cancel()
        self._closing.clear()  # the loop may be restarted

    async def _run(self) -> None:
        while self._is_asked:
            self._is_asked = False
            try:
                await self._work()
            except Exception:
                log.exception("%s failed", self._name)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._closing.wait()
