"""Work at most once a second, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from nni_manager.scheduler.turns import paced
from nni_manager.scheduler.turns.paced import Paced

pytestmark = pytest.mark.unit


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)


async def test_close_gives_up_on_a_disk_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "_PATIENCE_S", 0.05)
    is_looking = asyncio.Event()

    async def look() -> None:
        is_looking.set()
        await asyncio.Event().wait()

    watch = Paced(look, "look")
    watch.ask(start)
    await is_looking.wait()
    await asyncio.wait_for(watch.close(), 5)
