"""The last heartbeats of runners; a stall of the loop does not count as their silence."""

from __future__ import annotations

import asyncio

import pytest

from nni_manager.scheduler.turns.trial_listener import Heartbeats

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


async def test_silence_is_counted_from_the_last_post() -> None:
    news: list[float] = []
    heartbeats = Heartbeats(lambda: news.append(asyncio.get_running_loop().time()))
    assert heartbeats.silence_ms() == (None, {})
    heartbeats.begin()
    await asyncio.sleep(5)
    heartbeats.hear("a")
    await asyncio.sleep(30)
    assert heartbeats.silence_ms() == (35_000, {"a": 30_000})
    assert news == []
    heartbeats.hear("a")
    heartbeats.hear("a")
    assert len(news) == 1, "it had not been heard for long"
    heartbeats.drop("a")
    assert heartbeats.silence_ms() == (35_000, {})


async def test_stalled_loop_does_not_count_as_silence() -> None:
    heartbeats = Heartbeats(lambda: None)
    heartbeats.begin()
    heartbeats.hear("a")
    for _ in range(4):
        await asyncio.sleep(30)
        heartbeats.silence_ms()
    await asyncio.sleep(3600)
    listening, silent = heartbeats.silence_ms()
    assert (listening, silent) == (120_000, {"a": 120_000})
