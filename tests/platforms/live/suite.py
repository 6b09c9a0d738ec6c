"""One run of pytest against a real service, in a session of its own: a Ctrl-C ends its tests in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

_ROOT = Path(__file__).parents[3]
_INTERRUPTED = 2
#: Seconds that tests have to end what they have begun, once they are told to.
_LEAVING_S = 300.0


class Interrupts:
    """Ctrl-C and SIGTERM, between `heard` and its end: the first ends the tests and not what removes their traces."""

    def __init__(self) -> None:
        self.has_come = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str]) -> int:
        """The exit code of a command that is told of interrupts."""
        if self.has_come:
            return _INTERRUPTED
        with subprocess.Popen(command, cwd=_ROOT, start_new_session=True) as self._child:
            try:
                return self._wait(self._child)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._child.pid, signal.SIGKILL)  # what it left running
                self._child = None

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return child.wait(_LEAVING_S if self.has_come else None)
            except subprocess.TimeoutExpired:
                return _INTERRUPTED

    def hear(self, _number: int, _frame: FrameType | None) -> None:
        print("\ninterrupted: what was made is being removed", file=sys.stderr, flush=True)
        self.has_come = True
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)


@contextlib.contextmanager
def heard() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    former = {number: signal.signal(number, interrupts.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def command(tests: Sequence[str], folder: Path, options: Sequence[str], only: str) -> list[str]:
    """`tests`: modules in this folder; `only`: as pytest's ``-k``; empty: all."""
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-rs",
        f"--basetemp={folder}",
        *(str(Path(__file__).with_name(test)) for test in tests),
        *options,
        *(["-k", only] if only else []),
    ]
