"""Starts of child processes while the machine has no free process, memory or descriptor."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nni_manager.platform_kit import child_process
from trial_runner.wire import shortage

pytestmark = pytest.mark.unit


def failing(monkeypatch: pytest.MonkeyPatch, times: int, code: int) -> list[int]:
    """The next starts fail; the list counts them."""
    failed: list[int] = []
    begin: Callable[..., Awaitable[Any]] = asyncio.create_subprocess_exec

    async def begin_or_fail(*command: str, **options: Any) -> Any:
        if len(failed) < times:
            failed.append(code)
            raise OSError(code, os.strerror(code))
        return await begin(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", begin_or_fail)
    return failed


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
async def test_start_is_tried_again_during_a_shortage(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(child_process, "WAITS_S", (0.01,))
    failed = failing(monkeypatch, 5, code)
    process = await child_process.start("true")
    assert (await process.wait(), len(failed)) == (0, 5)


async def test_start_ends_with_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = failing(monkeypatch, 1000, errno.EAGAIN)
    with pytest.raises(BlockingIOError):
        await child_process.start("true", patience_s=0.5)
    assert 2 <= len(failed) <= 4


async def test_number_of_the_event_loop_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 1000, shortage.OF_UVLOOP)
    with pytest.raises(OSError, match="Too many open files"):
        await child_process.start("true", patience_s=0)


async def test_other_errors_of_a_start_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = failing(monkeypatch, 1000, errno.ENOENT)
    with pytest.raises(FileNotFoundError):
        await child_process.start("true")
    assert len(failed) == 1


@pytest.mark.parametrize(("code", "tries"), [(errno.EAGAIN, 4), (errno.ENOENT, 1)])
def test_blocking_start_is_tried_again_during_a_shortage_only(
    monkeypatch: pytest.MonkeyPatch, code: int, tries: int
) -> None:
    monkeypatch.setattr(shortage, "WAITS_S", (0.01,))
    left = [OSError(code, os.strerror(code))] * 3
    calls = []

    def start() -> str:
        calls.append(1)
        if left:
            raise left.pop()
        return "started"

    if tries == 1:
        with pytest.raises(FileNotFoundError):
            shortage.tried_again(start)
    else:
        assert shortage.tried_again(start) == "started"
    assert len(calls) == tries


def test_blocking_start_ends_with_its_patience() -> None:
    with pytest.raises(BlockingIOError):
        shortage.tried_again(_no_process, patience_s=0.2)


def _no_process() -> None:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
