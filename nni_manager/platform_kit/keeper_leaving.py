"""Jobs at a keeper that nobody wants any more and that have processes left: ended, waited for, forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Protocol

from nni_manager.domain.errors import PlatformError
from trial_runner import protocol

#: Seconds that `send_off` waits for a process which has said its last word and is about to end.
_LAST_MOMENT_S = 2.0

#: Of these jobs, those that the adapter knows; the others are ended.
Known = Callable[[Collection[str]], Awaitable[Collection[str]]]


class Asked(Protocol):
    """The jobs of one training service at their keeper; methods raise PlatformUnavailable."""

    async def listed(self) -> dict[str, dict[str, Any]]:
        """Name → job."""

    async def cancel(self, names: Sequence[str], grace_s: float) -> None:
        """Asks them to end."""

    async def request(self, verb: str, **arguments: Any) -> Any:
        """Asks the keeper."""


class Leaving:
    """Of one training service; `in` it are those whose end is waited for."""

    def __init__(self, jobs: Asked, known: Known | None) -> None:
        self._jobs = jobs
        self._known = known
        self._names: set[str] = set()
        self._gone = asyncio.Event()
        self._sweeping: set[asyncio.Task[None]] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    async def send_off(self, names: Sequence[str]) -> None:
        """Ends those that run, and waits a moment for that."""
        if not names:
            return
        self._names.update(names)  # before the keeper is asked: an end is told once, perhaps meanwhile
        jobs = await self._jobs.listed()
        running = {name for name in names if name in jobs and jobs[name]["state"] == protocol.RUNNING}
        self._names -= set(names) - running
        await self._end(running & self._names)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_MOMENT_S):
                while running & self._names:
                    self._gone.clear()
                    await self._gone.wait()

    async def end_strays(self) -> None:
        """Jobs that nobody knows, or that were forgotten while they ran, on a new connection."""
        if self._known is None and not self._names:
            return
        jobs = await self._jobs.listed()
        known = await self._known(jobs) if self._known is not None else jobs
        self._names = {name for name in jobs if name in self._names or name not in known}
        await self._end(self._names)

    def note_end(self, name: str, wake: Callable[[str], None]) -> None:
        """No process of it is left, and nobody else has the keeper forget it. `wake`: told of that."""
        self._names.discard(name)
        self._gone.set()
        task = asyncio.create_task(self._forget(name, wake), name=f"forget {name}")
        self._sweeping.add(task)
        task.add_done_callback(self._sweeping.discard)

    async def cancel(self) -> None:
        """What is not forgotten yet is found again by whoever connects next."""
        for task in tuple(self._sweeping):
            task.cancel()
        await asyncio.gather(*self._sweeping, return_exceptions=True)

    async def _end(self, names: Collection[str]) -> None:
        """They may have been told of already, or never on this connection."""
        if names:
            await self._jobs.cancel(sorted(names), 0)
            await self._jobs.request("follow", jobs={name: {} for name in names})

    async def _forget(self, name: str, wake: Callable[[str], None]) -> None:
        with suppress(PlatformError):  # it is found again on the next connection
            await self._jobs.request("forget", names=[name])
            wake(name)
