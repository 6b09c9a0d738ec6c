"""Controls trials that run elsewhere: each asks for its next order over HTTP, and returns the answer to the last."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from nni_manager.platform_kit.testing.middlebox import some_turns, stop_accepting


@dataclass(slots=True)
class _Job:
    orders: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    answers: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    #: Number of processes that have asked so far.
    runs: set[str] = field(default_factory=set)


class Orders:
    """Open within `open_orders`. The address gives control over a trial, so it contains a secret."""

    def __init__(self, host: str, patience_s: float) -> None:
        self._host = host
        self._patience_s = patience_s
        self._port = 0
        self._secret = secrets.token_hex(8)
        self._jobs: dict[str, _Job] = {}

    def command(self, job_name: str) -> str:
        return f"python3 led_job.py http://{self._host}:{self._port}/{self._secret}/{job_name}"

    async def starts(self, job_name: str) -> int:
        """The number of processes of this job that have asked for orders."""
        return len(self._job(job_name).runs)

    async def tell(self, job_name: str, order: str) -> Any:
        """The answer, when it is done; None for an order that ends the process."""
        job = self._job(job_name)
        job.orders.put_nowait(order)
        if order.startswith("exit"):
            async with asyncio.timeout(self._patience_s):
                return await job.orders.join()
        async with asyncio.timeout(self._patience_s):
            return await job.answers.get()

    def _job(self, name: str) -> _Job:
        return self._jobs.setdefault(name, _Job())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a trial."""
        try:
            path, body = await _request(reader)
            _, secret, name = path.split("/", 2)
            if secrets.compare_digest(secret, self._secret):
                await _send(writer, self._next(self._job(name), body))
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # a killed trial, or a stranger
        finally:
            writer.close()

    def _next(self, job: _Job, body: dict[str, Any]) -> str:
        job.runs.add(str(body["run"]))
        if body["answer"] is not None:
            job.answers.put_nowait(body["answer"])
        if job.orders.empty():  # no request waits: an open connection would look like one of the adapter's
            return ""
        order = job.orders.get_nowait()
        job.orders.task_done()
        return order

    def listens_at(self, port: int) -> None:
        self._port = port


@asynccontextmanager
async def open_orders(host: str, port: int, patience_s: float) -> AsyncIterator[Orders]:
    """`host`: this machine's address for trials; `port`: 0 is any."""
    orders, tasks = Orders(host, patience_s), set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(orders.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # also if it was cancelled before it began

    server = await asyncio.start_server(accept, host if host == "127.0.0.1" else None, port)
    orders.listens_at(server.sockets[0].getsockname()[1])
    try:
        yield orders
    finally:
        await stop_accepting(server)
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await some_turns()  # a connection is closed a turn after its task


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    path = head.split(" ", 2)[1]
    fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    body = json.loads(await reader.readexactly(int(fields["content-length"])))
    return path, body


async def _send(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    await writer.drain()
