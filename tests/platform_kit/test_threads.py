from __future__ import annotations

import asyncio
import threading

import pytest

from nni_manager.platform_kit.threads import SteadyThreads, to_its_end

pytestmark = pytest.mark.unit


class _Work:
    """Blocks in its thread until it may end. `error`: what it raises then."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.may_end = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.may_end.wait(20)
        if self._error is not None:
            raise self._error
        return "result"


async def _cancelled(waiting: asyncio.Future[str], work: _Work) -> None:
    """Cancels the caller while the work is under way."""
    await work.begun.wait()
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()


async def test_the_result_of_the_work_is_returned() -> None:
    undone: list[int] = []
    assert await to_its_end(lambda: 3, undo=undone.append) == 3
    assert not undone


async def test_exception_of_work_is_raised() -> None:
    undone: list[object] = []
    with pytest.raises(ZeroDivisionError):
        await to_its_end(lambda: 1 // 0, undo=undone.append)
    assert not undone


async def test_cancelled_caller_waits_and_result_is_undone() -> None:
    work, undone = _Work(), list[str]()
    waiting = asyncio.ensure_future(to_its_end(work, undo=undone.append))
    await _cancelled(waiting, work)
    assert not undone
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert undone == ["result"]


async def test_a_cancelled_caller_tells_the_work_to_stop() -> None:
    work = _Work()
    waiting = asyncio.ensure_future(to_its_end(work, stop=work.may_end.set))
    await work.begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_failed_work_after_cancellation_is_not_undone(caplog: pytest.LogCaptureFixture) -> None:
    work, undone = _Work(OSError("the disk is full")), list[str]()
    waiting = asyncio.ensure_future(to_its_end(work, undo=undone.append))
    await _cancelled(waiting, work)
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not undone
    assert not caplog.records


async def test_work_uses_existing_threads_during_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    with SteadyThreads(4) as threads:
        first = _Work()
        working = loop.run_in_executor(threads, first)
        await first.begun.wait()
        monkeypatch.setattr(threading.Thread, "start", _cannot_start)
        waiting = [loop.run_in_executor(threads, lambda: "later") for _ in range(3)]
        first.may_end.set()
        assert await asyncio.gather(working, *waiting) == ["result", "later", "later", "later"]


async def test_first_thread_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _cannot_start)
    with SteadyThreads(4) as threads, pytest.raises(RuntimeError):
        threads.submit(str)


def _cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
