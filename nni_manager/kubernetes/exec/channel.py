"""The channel exec: commands started in pods through the cluster's API write parameters and code there and read
results. For clusters that can neither reach this machine nor share storage with it.

Each call is complete in itself: an interrupted one is repeated from the stored offsets. The runner's container waits
until it is released after the last read. `trial_runner.runner.exec_channel` is the other side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiofiles

from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.exec.attempt import Attempt
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.platform_kit.contract import Host
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Commands that run in pods at a time.
_AT_ONCE = 8
#: Seconds that this may take at most when the adapter is left.
_LETTING_GO_S = 3.0
_CHUNK = 256 * 1024

#: (pod, verb of `exec_channel`, stdin) → stdout.
Execute = Callable[[Object, str, AsyncIterator[bytes]], Awaitable[bytes]]
#: Name of a job → the record of its parameters.
Record = Callable[[str], Awaitable[str]]


class ExecChannel:
    """The channel exec of one adapter. `sends_code`: the image lacks it; `on_chosen`: hears what pods have chosen."""

    def __init__(
        self, host: Host, execute: Execute, record: Record, on_chosen: Callable[[str], None], *, sends_code: bool
    ) -> None:
        self._host = host
        self.on_chosen = on_chosen
        self._execute = execute
        self._record = record
        self._sends_code = sends_code
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._attempts: dict[str, Attempt] = {}
        #: Tasks that release the pods of forgotten jobs: a pod keeps its resources until it is released.
        self._letting_go: set[asyncio.Task[None]] = set()
        self._news: dict[str, asyncio.Event] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def follow(self, memory: JobMemory, logs: Path) -> None:
        """Begins to serve a job; idempotent. `logs`: the folder to which its logs are copied."""
        if memory.name not in self._tasks:
            news = self._news[memory.name] = asyncio.Event()
            attempt = self._attempts[memory.name] = Attempt(self, memory, logs, news)
            self._tasks[memory.name] = asyncio.create_task(attempt.run(), name=f"exec {memory.job_name}")

    def notice(self, memory: JobMemory) -> None:
        """Notes that the job's pods have changed."""
        if memory.name in self._news:
            self._news[memory.name].set()

    def forget(self, name: str) -> None:
        self._news.pop(name, None)
        task, attempt = self._tasks.pop(name, None), self._attempts.pop(name, None)
        if task is None or attempt is None:
            return
        if attempt.lets_go:
            attempt.finish()
            self._letting_go.add(task)
            task.add_done_callback(self._letting_go.discard)
        else:
            task.cancel()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for name in list(self._tasks):
            self.forget(name)
        if self._letting_go:
            await asyncio.wait(self._letting_go, timeout=_LETTING_GO_S)
        tasks += self._letting_go
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def execute(self, pod: Object, verb: str, stdin: AsyncIterator[bytes]) -> bytes:
        async with self._turns:
            return await self._execute(pod, verb, stdin)

    async def filling(self, job_name: str) -> AsyncIterator[bytes]:
        """What the job's pods are filled with: parameters, then the code."""
        code = await self._host.code() if self._sends_code else None
        size = (await asyncio.to_thread(code.stat)).st_size if code is not None else 0
        yield protocol.encode({"record": await self._record(job_name), "code": size})
        if code is not None:
            async with aiofiles.open(code, "rb") as file:
                while data := await file.read(_CHUNK):
                    yield data

    @property
    def host(self) -> Host:
        return self._host
