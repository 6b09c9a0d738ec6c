"""Questions to disks that may never answer, each in a thread of its own, so that one which hangs keeps no other waiting
and does not delay the daemon's end."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Name = TypeVar("Name", bound=Hashable)


class PatientThreads(Generic[Name, T]):
    """At most one thread for each name, and `most` in all. Used from one event loop."""

    def __init__(self, most: int) -> None:
        self._asked: dict[Name, asyncio.Task[T]] = {}
        self._turns = asyncio.Semaphore(most)

    async def ask(self, name: Name, function: Callable[[], T], within_s: float) -> T:
        """What the function returns or raises. Raises TimeoutError; the thread goes on, and the next question about the
        name waits for the same one."""
        task = self._asked.get(name)
        if task is None:
            task = self._asked[name] = asyncio.create_task(self._in_turn(function), name=f"disk {name}")
            task.add_done_callback(partial(self._forget, name))
        done, _ = await asyncio.wait({task}, timeout=within_s)
        if not done:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {within_s:g} s")
        return task.result()

    def _forget(self, name: Name, task: asyncio.Task[T]) -> None:
        del self._asked[name]
        if not task.cancelled():
            task.exception()  # known, though the question may have been given up

    async def _in_turn(self, function: Callable[[], T]) -> T:
        async with self._turns:
            return await _in_thread(function)


def _in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Unlike a pool's, the thread is not waited for when the process ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            tell = partial(_set, answer.set_result, function())
        except Exception as error:
            tell = partial(_set, answer.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell)

    def _set(put: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            put(value)

    threading.Thread(target=work, name="disk", daemon=True).start()
    return answer
