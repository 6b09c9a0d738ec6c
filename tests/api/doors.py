"""An application behind a real door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from nni_manager.app.doors import Doors
from nni_manager.app.ports import reserve
from nni_manager.client.address import Address


@asynccontextmanager
async def socket_door(application: ASGIApp, path: Path) -> AsyncIterator[Address]:
    doors = Doors(application)  # type: ignore[arg-type]  # two libraries' words for one thing
    await doors.open_control(path)
    try:
        yield Address(socket=str(path))
    finally:
        await doors.close()


@asynccontextmanager
async def tcp_door(application: ASGIApp) -> AsyncIterator[Address]:
    """On a free port of this machine."""
    doors = Doors(application)  # type: ignore[arg-type]
    await doors.open_service(reserve("127.0.0.1", 0))
    try:
        yield Address(port=urlsplit(doors.open[0].address).port or 0)
    finally:
        await doors.close()
