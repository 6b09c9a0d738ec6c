"""Calls from other threads, carried out by the loop's own."""

import os
from collections import deque
from typing import Callable, Deque

from trial_runner.loop import Loop


class Mailbox:
    """Wakes the loop."""

    def __init__(self, loop: Loop) -> None:
        self._calls: Deque[Callable[[], None]] = deque()
        reader, self._writer = os.pipe()
        for descriptor in (reader, self._writer):
            os.set_blocking(descriptor, False)
        loop.watch(reader, lambda _: self._open(reader))

    def put(self, call: Callable[[], None]) -> None:
        """Any thread may."""
        self._calls.append(call)
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            pass  # so full that the loop will wake anyway

    def _open(self, reader: int) -> None:
        os.read(reader, 4096)
        for _ in range(len(self._calls)):
            self._calls.popleft()()
