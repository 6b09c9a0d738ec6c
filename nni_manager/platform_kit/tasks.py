"""Background tasks are ended, cancelled and waited for, so that nothing of them is left; events are waited for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


async def ended(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels these tasks, and returns when all have ended, whatever they raise. None: there is no such task."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def happened(event: asyncio.Event, limit: asyncio.Timeout) -> bool:
    """Waits for an event, within a limit such as ``asyncio.timeout(5)``; answers whether it came."""
    with suppress(TimeoutError):
        async with limit:
            return await event.wait()
    return False
