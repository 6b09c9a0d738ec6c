"""Containers as forks of one process with an imported trial runner: hundreds of real runners on a small machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes.kubelet.processes import Command

_ROOT = Path(__file__).parents[4]
_LIMIT = 1 << 20


class Forks:
    """The forks of one cluster. The forked process starts with the first of them."""

    def __init__(self) -> None:
        self._running: dict[int, Forked] = {}
        self._server: asyncio.Task[Process] | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self, number: int, command: Command) -> Forked:
        forked = self._running[number] = Forked(number)
        forked.asking = asyncio.create_task(self._ask(number, command))
        return forked

    async def close(self) -> None:
        if self._server is None:
            return
        server = await self._server
        assert server.stdin is not None and self._reading is not None
        server.stdin.close()
        await self._reading
        await server.wait()

    async def _ask(self, number: int, command: Command) -> None:
        if self._server is None:
            self._server = asyncio.create_task(self._begin())
        server = await asyncio.shield(self._server)
        assert server.stdin is not None
        asked = {
            "number": number,
            "environment": command.environment,
            "folder": str(command.working_folder),
            "log": str(command.log),
        }
        server.stdin.write(json.dumps(asked).encode() + b"\n")

    async def _begin(self) -> Process:
        server = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.fakes.kubernetes.kubelet.fork_server",
            cwd=_ROOT,
            stdin=PIPE,
            stdout=PIPE,
            limit=_LIMIT,
        )
        self._reading = asyncio.create_task(self._read(server))
        return server

    async def _read(self, server: Process) -> None:
        assert server.stdout is not None
        async for line in server.stdout:
            self._hear(json.loads(line))

    def _hear(self, told: dict[str, Any]) -> None:
        forked = self._running[told["number"]]
        if "pid" in told:
            return forked.begin(told["pid"])
        del self._running[told["number"]]
        forked.end(told["code"])


class Forked:
    """A forked container."""

    def __init__(self, number: int) -> None:
        self.id = f"forked://{number}"
        self.asking: asyncio.Task[None] | None = None
        self._pid = 0
        self._code = 0
        self._ended = asyncio.Event()
        #: Signals sent before the pid was known.
        self._signals: list[int] = []

    def begin(self, pid: int) -> None:
        self._pid = pid
        for number in self._signals:
            self._send(number)

    def end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return self._code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Nothing to do: leftovers of its command in other sessions exit on their own."""
        self._send(signal.SIGKILL)

    def reap(self) -> None:
        """Nothing to do: the forked process reaps it."""

    def _send(self, number: int) -> None:
        if not self._pid:
            self._signals.append(number)
        elif not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)
