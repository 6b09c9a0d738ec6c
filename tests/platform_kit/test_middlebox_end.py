"""The box between runners and listener ends without leaving a connection open."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading

import pytest

from nni_manager.platform_kit.testing.middlebox import Middlebox

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("turns", range(5))
async def test_connection_during_middlebox_end_is_closed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    ready, over = threading.Event(), asyncio.Event()
    box = Middlebox(9, lambda route, body: None)
    serving = asyncio.create_task(box.serve(ready, over))
    while not ready.is_set():  # noqa: ASYNC110 (a thread waits for it elsewhere)
        await asyncio.sleep(0)
    callers = [socket.socket() for _ in range(20)]
    for caller in callers:
        caller.setblocking(False)
        caller.connect_ex(("127.0.0.1", box.port))
    for _ in range(turns):
        await asyncio.sleep(0)
    over.set()
    await serving
    gc.collect()
    for caller in callers:
        caller.close()
    assert left == []
