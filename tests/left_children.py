"""Fail the test that leaves a child process, instead of a later one.

Processes that a fork server started for a test count as its children.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from trial_runner import processes

#: Seconds for threads and loops to reap children that have just ended; not used without children.
_REAPED_WITHIN_S = 2.0
_LOOK_S = 0.01

#: Children of fixtures that several tests share; these end later than the test that started them.
_shared: set[int] = set()
#: Servers whose children belong to the tests that request them.
_servers: set[int] = set()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    before = _children()
    result = yield
    _shared.update(_children() - before)
    return result


def share(pid: int) -> None:
    """Register a child that one test starts and others use. It must end before the session."""
    _shared.add(pid)
    _servers.add(pid)


def end_sharing(pid: int) -> None:
    """Call before that child ends. Fails if shared fixtures left one of its children."""
    _shared.clear()
    try:
        _require_none(set(processes.children(os.getpid())))
    finally:
        _servers.discard(pid)


@pytest.fixture(scope="session", autouse=True)
def no_child_of_shared_fixtures_is_left() -> Iterator[None]:
    """Check at the end of the session that children of shared fixtures have ended, too."""
    before = _children()
    yield
    _shared.clear()
    _require_none(before)


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Check the children of a test. Torn down last, after other fixtures have ended theirs."""
    before = _children()
    yield
    _require_none(before)


def _children() -> set[int]:
    forked = (child for server in _servers for child in processes.children(server) if not _is_daemons(child))
    return {*processes.children(os.getpid()), *forked}


def _is_daemons(pid: int) -> bool:
    """Whether a child is a keeper or a tuner.

    A keeper outlives its daemon and ends automatically. A tuner ends with its daemon, which several tests may share.
    """
    return not {b"trial_runner.keeper", b"nni_manager.scheduler.tuning.process"}.isdisjoint(_command(pid).split(b"\0"))


def _require_none(before: set[int]) -> None:
    if left := _left(before | _shared):
        told = [_described(pid) for pid in sorted(left)]
        _end(left)
        pytest.fail(f"left behind: {'; '.join(told)}", pytrace=False)


@contextmanager
def reaped() -> Iterator[None]:
    """Wait for new children without a waiting parent: daemons, and orphans of a test that is their subreaper.

    They end on their own, or were asked to.
    """
    before = set(processes.children(os.getpid()))
    yield
    for pid in set(processes.children(os.getpid())) - before - _shared:
        os.waitpid(pid, 0)


def _left(before: set[int]) -> set[int]:
    deadline = time.monotonic() + _REAPED_WITHIN_S
    while (left := _children() - before) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return left


def _described(pid: int) -> str:
    command = _command(pid).replace(b"\0", b" ").decode(errors="replace").strip()
    stat = processes.read_stat(pid)
    return f"process {pid}, {command or 'a zombie'} ({stat.state if stat else 'gone'})"


def _command(pid: int) -> bytes:
    """Its arguments, each followed by a zero byte; empty for a process that has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(500)
    except OSError:
        return b""


def _end(pids: set[int]) -> None:
    """Kill the children, so that the next test starts without them."""
    for pid in pids:
        processes.send_signal(pid, signal.SIGKILL)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue
