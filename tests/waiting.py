"""Wait for conditions without an event: files, other processes, answers of a server."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from typing import Any

_LOOK_AGAIN_S = 0.02
_WITHIN_S = 40.0


def until(look: Callable[[], Any], within_s: float = _WITHIN_S, what: str = "") -> Any:
    """The first true answer of `look`. A failure names `what`, or the calling line."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, _in_vain(within_s, what or _calling_line(), found)
        time.sleep(_LOOK_AGAIN_S)
    return found


async def until_async(look: Callable[[], Any], within_s: float = _WITHIN_S, what: str = "") -> Any:
    """The same without blocking the event loop."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not (found := look()):
        assert asyncio.get_running_loop().time() < deadline, _in_vain(within_s, what or _calling_line(), found)
        await asyncio.sleep(_LOOK_AGAIN_S)
    return found


def _in_vain(within_s: float, what: str, found: object) -> str:
    return f"waited {within_s:g} s in vain: {what}; the last answer was {found!r}"


def _calling_line() -> str:
    """The source line of the caller, such as ``until(lambda: daemon.is_up)``."""
    return traceback.extract_stack(limit=3)[0].line or "unknown"
