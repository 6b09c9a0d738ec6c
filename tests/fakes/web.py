"""What fakes that are web applications share: how they are served, how time passes, how an answer gets lost."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_TICK_S = 0.05


class BrokenOff(Response):
    """The connection breaks: an answer begins, and never comes."""

    status_code = 0

    def __init__(self) -> None:
        """Nothing is made of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})


class Cluster(Protocol):
    """Something that changes by itself, while it is busy."""

    @property
    def is_busy(self) -> bool: ...

    def advance(self) -> None: ...


def passing_time(cluster: Cluster) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    """An application's lifespan: advances a busy cluster every 50 ms, without a request, too."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if cluster.is_busy:
                cluster.advance()

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        ticking = asyncio.create_task(tick())
        yield
        ticking.cancel()
        await asyncio.wait([ticking])

    return lifespan


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Of the arguments that all have. `name`: of the fake's package."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fakes.{name}", description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True, help="what outlives a restart")
    return parser


def serve(app: Starlette, host: str, port: int) -> None:
    """Until it is ended; its address is its first line."""
    listening = socket.create_server((host, port))
    print(f"http://{host}:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])
