"""One list call for concurrent queries."""

from __future__ import annotations

import asyncio

import pytest

from nni_manager.web_services.shared_list import SharedList

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


async def test_concurrent_calls_share_an_answer() -> None:
    calls = Calls()
    shared = SharedList(calls.fetch, fresh_s=5)
    assert await asyncio.gather(*(shared.get() for _ in range(10))) == [1] * 10
    assert await shared.get() == 1
    await asyncio.sleep(5)
    assert await shared.get() == 2


async def test_older_answer_is_not_reused() -> None:
    calls = Calls()
    shared = SharedList(calls.fetch, fresh_s=5)
    early = asyncio.create_task(shared.get())
    await asyncio.sleep(0.5)
    accepted = asyncio.get_running_loop().time()
    assert await asyncio.gather(shared.get(accepted), shared.get(accepted)) == [2, 2]
    assert await early == 1
    assert calls.at_once == 1


async def test_error_reaches_all_callers_and_is_not_cached() -> None:
    calls = Calls()
    shared = SharedList(calls.fetch, fresh_s=5)
    calls.error = RuntimeError("down")
    assert [type(one) for one in await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)] == [
        RuntimeError,
        RuntimeError,
    ]
    calls.error = None
    assert await shared.get() == 2


async def test_cancelled_call_does_not_cancel_others() -> None:
    shared = SharedList(Calls().fetch, fresh_s=5)
    first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await asyncio.sleep(0.1)
    first.cancel()
    assert await second == 1
    await shared.close()


class Calls:
    """A far side that takes a second."""

    def __init__(self) -> None:
        self.count = self.now = self.at_once = 0
        self.error: Exception | None = None

    async def fetch(self) -> int:
        self.count += 1
        number = self.count
        self.now += 1
        self.at_once = max(self.at_once, self.now)
        await asyncio.sleep(1)
        self.now -= 1
        if self.error is not None:
            raise self.error
        return number
