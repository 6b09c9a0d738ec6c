"""The end of background tasks: cancelled, and waited for, so that nothing of them is left."""

from __future__ import annotations

import asyncio
from typing import Any


async def ended(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels these tasks, and returns when all have ended, whatever they raise. None: there is no such task."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
