"""Ports that are reserved, busy or released."""

from __future__ import annotations

import asyncio
import os
import threading

import psutil
import pytest

from nni_manager.app.listening.ports import Reserved, http_address, reserve, reserve_in_thread
from nni_manager.domain.errors import AlreadyOwned, InvalidInput
from tests.app.foreign_port import free_port, listening

pytestmark = pytest.mark.unit


def test_a_busy_port_names_its_process() -> None:
    with listening() as port, pytest.raises(AlreadyOwned) as refusal:
        reserve("127.0.0.1", port)
    name = psutil.Process().name()
    assert str(refusal.value) == f"port {port} is in use by process {os.getpid()} ({name}); choose another with --port"


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-name.invalid"])
def test_an_address_that_is_not_ours(host: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{host}:0 cannot be listened on \(.+\); choose another with --host"):
        reserve(host, 0)


@pytest.mark.parametrize(("host", "address"), [("gpu-box", "http://gpu-box:80"), ("::1", "http://[::1]:80")])
def test_an_address_as_a_browser_takes_it(host: str, address: str) -> None:
    assert http_address(host, 80) == address


async def test_cancelled_reservation_releases_the_port() -> None:
    port, begun, go_on = free_port(), threading.Event(), threading.Event()

    def choose() -> Reserved:
        begun.set()
        go_on.wait()
        return reserve("127.0.0.1", port)

    reserving = asyncio.ensure_future(reserve_in_thread(choose))
    await asyncio.to_thread(begun.wait)
    reserving.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reserving
    reserve("127.0.0.1", port).give_back()
