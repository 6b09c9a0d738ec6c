"""An application behind a real listener."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from nni_manager.app.listening.listeners import Listeners
from nni_manager.app.listening.ports import reserve
from nni_manager.client.address import Address


@asynccontextmanager
async def socket_listener(application: ASGIApp, path: Path) -> AsyncIterator[Address]:
    listeners = Listeners(application)  # type: ignore[arg-type]  # two libraries' words for one thing
    await listeners.open_control(path)
    try:
        yield Address(socket=str(path))
    finally:
        await listeners.close()


@asynccontextmanager
async def tcp_listener(application: ASGIApp) -> AsyncIterator[Address]:
    """On a free port of this machine."""
    listeners = Listeners(application)  # type: ignore[arg-type]
    await listeners.open_port("service", reserve("127.0.0.1", 0))
    try:
        yield Address(port=urlsplit(listeners.open[0].address).port or 0)
    finally:
        await listeners.close()
