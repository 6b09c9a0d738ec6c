"""One analysis process for all tests: its start takes a third of a second, longer than most of its answers.

`tests/analysis` and tests of whole daemons check its start, end and replacement.
"""

from __future__ import annotations

import pytest

from nni_manager.analysis.service import WorkerProcess


def share(kept: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that managers get, unless it has ended; it continues when a manager stops it."""
    start, close = WorkerProcess.start, WorkerProcess.close

    async def shared() -> WorkerProcess:
        return await start() if kept.has_ended else kept

    async def left(worker: WorkerProcess) -> None:
        if worker is not kept:
            await close(worker)

    monkeypatch.setattr(WorkerProcess, "start", shared)
    monkeypatch.setattr(WorkerProcess, "close", left)
