"""Cancels and awaits background tasks, and waits for events and descriptors."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any


async def ended(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels the tasks and waits until all have finished; their exceptions are discarded. None: no task."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


async def happened(event: asyncio.Event, limit: asyncio.Timeout) -> bool:
    """Waits for an event, within a limit such as ``asyncio.timeout(5)``; returns whether it was set."""
    with suppress(TimeoutError):
        async with limit:
            return await event.wait()
    return False


async def readable(descriptor: int | socket.socket) -> None:
    """Returns when a read from the descriptor would not block. The loop must have no other reader for it."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
