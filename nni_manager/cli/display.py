"""Where progress is shown: one line redrawn on a terminal, a line for each tenth on a pipe."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from nni_manager.cli import progress
from nni_manager.cli.progress import Progress

#: At most five redraws a second.
REDRAW_S = 0.2


class Display(Protocol):
    #: How long to wait for news before `show` is called again, in seconds; None: until there are some.
    tick_s: float | None

    def show(self, now: Progress) -> None: ...

    def note(self, text: str) -> None:
        """A sentence on a line of its own."""

    def close(self, now: Progress) -> None:
        """The last word on progress, on a line of its own."""


class TerminalDisplay:
    """Redraws its line; what comes too soon is shown by the next tick."""

    tick_s: float | None = REDRAW_S

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._drawn_s = float("-inf")
        self._drawn = ""

    def show(self, now: Progress) -> None:
        text = progress.line(now, shutil.get_terminal_size().columns - 1)
        if text != self._drawn and self._clock() - self._drawn_s >= REDRAW_S:
            self._draw(text)

    def note(self, text: str) -> None:
        self._draw(text)
        self._stream.write("\n")

    def close(self, now: Progress) -> None:
        self._draw(progress.line(now))
        self._stream.write("\n")

    def _draw(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")  # ESC [K: clear to the end of the line
        self._stream.flush()
        self._drawn, self._drawn_s = text, self._clock()


class LineDisplay:
    """A line at the start, at every tenth, and at the end."""

    tick_s: float | None = None

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._step: int | None = None

    def show(self, now: Progress) -> None:
        if (step := progress.step(now)) != self._step:
            self._step = step
            self._write(progress.line(now))

    def note(self, text: str) -> None:
        self._write(text)

    def close(self, now: Progress) -> None:
        self._write(progress.line(now))

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


def for_stream(stream: TextIO) -> Display:
    return TerminalDisplay(stream) if stream.isatty() else LineDisplay(stream)
