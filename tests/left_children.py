"""A test that starts processes waits for their ends: it fails when it leaves one behind, and not a later one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trial_runner import processes

#: Seconds for threads and loops that reap what has just ended; nobody waits who left nothing.
_REAPED_WITHIN_S = 2.0
_LOOK_S = 0.01


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """First to be made, last to be ended: what a fixture started is its to end."""
    before = set(processes.children(os.getpid()))
    yield
    left = _left(before)
    if left:
        told = [_described(pid) for pid in sorted(left)]
        _end(left)
        pytest.fail(f"left behind: {'; '.join(told)}", pytrace=False)


@contextmanager
def reaped() -> Iterator[None]:
    """Waits for the children that were started meanwhile and that nobody waits for: daemons, and orphans of a test that
    is their subreaper. They end by themselves, or were told to."""
    before = set(processes.children(os.getpid()))
    yield
    for pid in set(processes.children(os.getpid())) - before:
        os.waitpid(pid, 0)


def _left(before: set[int]) -> set[int]:
    deadline = time.monotonic() + _REAPED_WITHIN_S
    while (left := set(processes.children(os.getpid())) - before) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return left


def _described(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(500).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    stat = processes.read_stat(pid)
    return f"process {pid}, {command or 'a zombie'} ({stat.state if stat else 'gone'})"


def _end(pids: set[int]) -> None:
    """So that the next test meets none of them."""
    for pid in pids:
        processes.send_signal(pid, signal.SIGKILL)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue
