"""Blocking work in a thread, which cannot be interrupted: a cancelled caller waits for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(
    work: Callable[[], T], *, stop: Callable[[], object] | None = None, undo: Callable[[T], object] | None = None
) -> T:
    """Runs `work` in a thread and returns its result. Raises the work's error.

    If the caller is cancelled, `stop` asks the work to end early, the end is awaited, and `undo`, also in a thread,
    gets the unused result: for example an open file or port, or stored state.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if stop is not None:
            stop()
        await asyncio.wait({working})
        if _succeeded(working) and undo is not None:
            await asyncio.to_thread(undo, working.result())
        raise


class SteadyThreads(ThreadPoolExecutor):
    """Threads for an event loop's blocking work. While no new thread can start, existing ones do the work, instead of
    a RuntimeError for the caller."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


def _succeeded(working: asyncio.Future[T]) -> bool:
    """Whether the work returned; marks its exception as retrieved, so that it is not logged."""
    with suppress(asyncio.CancelledError):
        return working.exception() is None
    return False
