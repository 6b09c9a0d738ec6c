"""Calls to one account: a pace, a burst, and what the far side asks for."""

from __future__ import annotations

import asyncio

import pytest

from nni_manager.web_services.pacing import Pacing

pytestmark = [pytest.mark.unit, pytest.mark.asyncio, pytest.mark.looptime]


async def times(pacing: Pacing, calls: int) -> list[float]:
    loop, made = asyncio.get_running_loop(), []

    async def call() -> None:
        await pacing.turn()
        made.append(loop.time())

    begun = loop.time()
    await asyncio.gather(*(call() for _ in range(calls)))
    return [round(moment - begun, 3) for moment in made]


async def test_a_burst_and_then_a_pace() -> None:
    assert await times(Pacing(calls=2, per_s=1, burst=3), 6) == [0, 0, 0, 0.5, 1.0, 1.5]


async def test_unused_calls_are_saved_up_to_a_burst() -> None:
    pacing = Pacing(calls=1, per_s=1, burst=2)
    await times(pacing, 2)
    await asyncio.sleep(100)
    assert await times(pacing, 3) == [0, 0, 1.0]


async def test_back_off_delays_calls() -> None:
    pacing = Pacing(calls=10, per_s=1)
    await pacing.turn()
    pacing.back_off(7)
    pacing.back_off(3)
    assert await times(pacing, 2) == [7.0, 7.1]


async def test_calls_are_served_in_order() -> None:
    pacing, order = Pacing(calls=1, per_s=1), []

    async def call(name: int) -> None:
        await pacing.turn()
        order.append(name)

    await asyncio.gather(*(call(name) for name in range(20)))
    assert order == list(range(20))
