"""A list call shared by all jobs of an account: concurrent calls, or calls soon after, get the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nni_manager.platform_kit.tasks import ended

T = TypeVar("T")


class SharedList(Generic[T]):
    """A remote call with a shared answer. `fetch`: the call; `fresh_s`: seconds for which an answer is reused, from the
    start of its call."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], fresh_s: float) -> None:
        self._fetch = fetch
        self._fresh_s = fresh_s
        self._running: asyncio.Task[T] | None = None
        self._running_since_s = float("-inf")
        self._answer: tuple[float, T] | None = None

    async def get(self, not_before_s: float = float("-inf")) -> T:
        """The answer of a call made after `not_before_s`, by the loop's clock, e.g. when the last job was accepted.

        Raises the exceptions of `fetch`, in all waiting calls.
        """
        oldest_s = max(not_before_s, asyncio.get_running_loop().time() - self._fresh_s)
        if self._answer is not None and self._answer[0] >= oldest_s:
            return self._answer[1]
        while self._running is not None and not self._running.done() and self._running_since_s < oldest_s:
            await asyncio.wait([self._running])  # its answer may be too old; only one call at a time
        if self._running is None or self._running.done():
            self._running_since_s = asyncio.get_running_loop().time()
            self._running = asyncio.create_task(self._ask(), name="list of jobs")
            self._running.add_done_callback(_look_at)  # all callers may have been cancelled
        return await asyncio.shield(self._running)

    async def close(self) -> None:
        """Cancels a running call and waits for its end."""
        await ended(self._running)

    async def _ask(self) -> T:
        since_s = asyncio.get_running_loop().time()
        answer = await self._fetch()
        self._answer = (since_s, answer)
        return answer


def _look_at(task: asyncio.Task[T]) -> None:
    if not task.cancelled():
        task.exception()
