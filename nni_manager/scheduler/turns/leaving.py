"""Leaving an adapter, which may take long or fail: neither keeps a daemon that is told to end."""

from __future__ import annotations

import asyncio
import logging

from nni_manager.platform_kit.contract import Platform

log = logging.getLogger(__name__)

#: Seconds that it may take.
_EXIT_S = 10.0


async def leave(platform: Platform) -> None:
    """Leaves the adapter. Raises what it raises, and TimeoutError; in a task that was cancelled that is logged, and the
    cancellation goes on: an error in its place would have the adapter entered again."""
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(_EXIT_S):
            await platform.__aexit__(None, None, None)
    except Exception as error:
        if task is None or not task.cancelling():
            raise
        log.warning("an adapter could not be left: %r", error, exc_info=error, extra={"action": "barrier"})
        raise asyncio.CancelledError from None
