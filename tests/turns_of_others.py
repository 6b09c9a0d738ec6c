"""Counts how often other work gets its turn on the event loop while something runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[Callable[[], int]]:
    """A context with the number of turns so far of a task that only waits for the next one."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    try:
        yield lambda: turns
    finally:
        task.cancel()
