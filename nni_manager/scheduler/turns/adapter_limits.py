"""Time limits for calls of an adapter, per verb, and for leaving it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.platform_kit.contract import TIME_LIMITS_S, Platform

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Most seconds for leaving an adapter.
_EXIT_S = 10.0


async def leave(platform: Platform[Any]) -> None:
    """Leaves the adapter. Raises what it raises, and TimeoutError. In a cancelled task the error is logged and the
    cancellation continues, as another error would cause a reconnect."""
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(_EXIT_S):
            await platform.__aexit__(None, None, None)
    except Exception as error:
        if task is None or not task.cancelling():
            raise
        log.warning("an adapter could not be left: %r", error, exc_info=error, extra={"action": "barrier"})
        raise asyncio.CancelledError from None


async def within_limit(service: str, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
    """The result of an adapter's verb. Raises what it raises, and PlatformUnavailable on timeout."""
    limit_s = TIME_LIMITS_S[verb]
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await ask()
    except TimeoutError:
        if not limit.expired():
            raise
        raise PlatformUnavailable(f"{service}: no answer to '{verb}' within {limit_s:.0f} s") from None
