"""One process answers about trials for all tests: its start takes a processor a third of a second, more than most of
its answers. How it starts, ends and is replaced is for `tests/analysis`, and for tests of whole daemons.
"""

from __future__ import annotations

import pytest

from nni_manager.analysis.service import WorkerProcess


def share(kept: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what a manager starts, unless it has ended, and goes on when a manager ends it."""
    start, close = WorkerProcess.start, WorkerProcess.close

    async def shared() -> WorkerProcess:
        return await start() if kept.has_ended else kept

    async def left(worker: WorkerProcess) -> None:
        if worker is not kept:
            await close(worker)

    monkeypatch.setattr(WorkerProcess, "start", shared)
    monkeypatch.setattr(WorkerProcess, "close", left)
