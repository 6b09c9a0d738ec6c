"""What leads trials elsewhere ends without leaving a connection of theirs open."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys

import pytest

from nni_manager.platform_kit.testing.orders import open_orders

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("turns", range(5))
async def test_a_trial_that_asks_while_orders_end_is_hung_up_on(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    callers = [socket.socket() for _ in range(20)]
    async with open_orders("127.0.0.1", 0, 1.0) as orders:
        port = int(orders.command("job").split(":")[2].split("/")[0])
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
    gc.collect()
    for caller in callers:
        caller.close()
    assert left == []
