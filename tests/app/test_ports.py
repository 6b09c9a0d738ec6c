"""Ports that are reserved, busy or released."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import psutil
import pytest

from nni_manager.app.listening.ports import (
    Reserved,
    check_exposure,
    check_read_token,
    http_address,
    reserve,
    reserve_in_thread,
)
from nni_manager.config.settings import Settings
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
    with pytest.raises(InvalidInput, match=rf"cannot listen on {host}:0 \(.+\); choose another with --host"):
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


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ({"read_token": "r" * 16}, "NNI_MANAGER_TOKEN"),
        ({"token": "t" * 16, "read_token": "t" * 16}, "are equal"),
    ],
)
def test_read_token_requires_a_full_token(tokens: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_read_token(Settings(data_dir=Path("/d"), **tokens))  # type: ignore[arg-type]
    check_read_token(Settings(data_dir=Path("/d"), token="t" * 16, read_token="r" * 16))


def test_short_read_token_is_refused_on_exposed_host() -> None:
    settings = Settings(data_dir=Path("/d"), host="0.0.0.0", token="t" * 16, read_token="r" * 15)
    with pytest.raises(InvalidInput, match="the readToken is too short"):
        check_exposure(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
@pytest.mark.parametrize(
    ("name", "tokens"), [("token", {"token": "t" * 15}), ("readToken", {"token": "t" * 16, "read_token": "r"})]
)
def test_a_short_token_is_refused_on_loopback(host: str, name: str, tokens: dict[str, str]) -> None:
    """With a token the check of the connection's user is off, so every user of the machine may guess it."""
    with pytest.raises(InvalidInput, match=f"--host {host} can be reached by all users .*the {name} is too short"):
        check_exposure(Settings(data_dir=Path("/d"), host=host, **tokens))  # type: ignore[arg-type]
    check_exposure(Settings(data_dir=Path("/d"), host=host, token="t" * 16))
    check_exposure(Settings(data_dir=Path("/d"), host=host))
