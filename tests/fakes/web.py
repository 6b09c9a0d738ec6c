"""Common part of fakes that are web applications: serving, passing time, lost answers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

_TICK_S = 0.05


class BrokenOff(Response):
    """A response whose connection breaks after its start."""

    status_code = 0

    def __init__(self) -> None:
        """No body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})


class Cluster(Protocol):
    """A simulation that changes over time while it is busy."""

    @property
    def is_busy(self) -> bool: ...

    def advance(self) -> None: ...


class Faults:
    """Faults of every service. `outage`: a status, or "drop". `lose_answers`: number of submissions without answer."""

    def __init__(self) -> None:
        self.outage: int | str = ""
        self.hang = False
        self.lose_answers = 0
        self.list_most: int | None = None


class FakeService:
    """A service in front of a cluster: its state and common faults."""

    cluster: Any
    faults: Any

    @property
    def is_busy(self) -> bool:
        return bool(self.cluster.is_busy)

    def advance(self) -> None:
        self.cluster.advance()

    def behave(self, **changes: Any) -> None:
        """Set fields of `faults`, or else of the cluster."""
        for name, value in changes.items():
            target = self.faults if hasattr(self.faults, name) else self.cluster
            assert hasattr(target, name), name
            setattr(target, name, value)

    async def until_answering(self) -> None:
        while self.faults.hang:  # noqa: ASYNC110 (until a test says so)
            await asyncio.sleep(_TICK_S)

    def outage(self) -> Response | None:
        if self.faults.outage == "drop":
            return BrokenOff()
        return PlainTextResponse("gateway", int(self.faults.outage)) if self.faults.outage else None

    def lost_or(self, answer: Response) -> Response:
        """The answer to an accepted submission, or a broken connection instead."""
        if not self.faults.lose_answers:
            return answer
        self.faults.lose_answers -= 1
        return BrokenOff()


def passing_time(cluster: Cluster) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    """An application's lifespan: advances a busy cluster every 50 ms, also without requests."""

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
    """Parser with the common arguments. `name`: of the fake's package."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fakes.{name}", description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True, help="folder of its state")
    return parser


def serve(app: Starlette, host: str, port: int) -> None:
    """Serve until interrupted; the first line of output is the address."""
    listening = socket.create_server((host, port))
    print(f"http://{host}:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])
