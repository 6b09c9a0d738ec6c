"""When a connected keeper is asked whether it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines.keeper.connection import SILENCE_S, Connection, ask_in_silence
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


class Transport:
    """That of a connection, which is read from or not."""

    reads = True

    def is_reading(self) -> bool:
        return self.reads


class Client:
    """Hears messages and has no use for them."""

    def on_message(self, message: object) -> None:
        pass

    def on_lost(self, connection: Connection, why: str) -> None:
        pass

    def on_silence(self, connection: Connection, why: str) -> None:
        pass


class Line:
    """A connection, and when the keeper was asked, in seconds."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.connection = Connection(Client())
        self.connection.connection_made(cast(Any, self.transport))
        self.lost = asyncio.Event()
        self.asked_at: list[float] = []
        self._began = asyncio.get_running_loop().time()

    def says_something(self) -> None:
        self.connection.data_received(protocol.encode({"event": "lines"}))

    async def ask(self) -> None:
        """It answers, and refuses."""
        self.asked_at.append(round(asyncio.get_running_loop().time() - self._began))
        self.says_something()
        raise PlatformUnavailable("not today")


@asynccontextmanager
async def watched() -> AsyncIterator[Line]:
    """It ends with the connection."""
    line = Line()
    watch = asyncio.create_task(ask_in_silence(line.connection, line.lost, line.ask))
    yield line
    assert not watch.done()
    line.lost.set()
    await watch


async def test_silent_keeper_is_probed_repeatedly() -> None:
    async with watched() as line:
        await asyncio.sleep(3.5 * SILENCE_S)
        assert line.asked_at == [SILENCE_S, 2 * SILENCE_S, 3 * SILENCE_S]


async def test_active_keeper_is_not_probed() -> None:
    async with watched() as line:
        for _ in range(10):
            await asyncio.sleep(SILENCE_S / 2 + 0.1)
            line.says_something()
        assert line.asked_at == []
        await asyncio.sleep(2 * SILENCE_S)
        assert line.asked_at


async def test_paused_reading_is_not_silence() -> None:
    async with watched() as line:
        line.transport.reads = False
        await asyncio.sleep(10 * SILENCE_S)
        assert line.asked_at == []


async def test_lost_connection_ends_the_probes() -> None:
    async with watched() as line:
        await asyncio.sleep(SILENCE_S - 1)
    await asyncio.sleep(5 * SILENCE_S)
    assert line.asked_at == []
