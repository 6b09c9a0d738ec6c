"""Closed experiments of an older schema: each is read in a copy, which stays while it is read, and then goes."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from nni_manager.platform_kit.tasks import ended
from nni_manager.scheduler.experiments import closed
from nni_manager.scheduler.experiments.closed import ClosedExperiment, ClosedExperiments
from nni_manager.store import database, migrate
from nni_manager.store.connection import connect
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from tests.store import test_older_databases

pytestmark = pytest.mark.unit


class Ones(ClosedExperiments):
    """Two closed experiments, exp0 and exp1; one stays open."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self._folder, self._copies = folder, copies
        migrate.migrate(folder / index.FILE, "index")
        with closing(connect(folder / index.FILE)) as connection:
            for name in ("exp0", "exp1"):
                made = Folder(folder / name)
                test_older_databases.made_then(made.database, "experiment")
                index.put(connection, replace(index.read_folder(made), id=name, folder=made))
        super().__init__(Database(folder / index.FILE))

    @property
    def copies(self) -> int:
        """The number of copies that there are."""
        return len(list(self._copies.iterdir()))

    async def count(self, id: str, chosen: asyncio.Event | None = None) -> int:
        """Reads the number of an experiment's trials. `chosen`: set when it is open and the read is about to begin."""

        def choose(_: ClosedExperiment) -> Callable[[sqlite3.Connection], int]:
            if chosen is not None:
                chosen.set()
            return lambda connection: len(connection.execute("SELECT id FROM trials").fetchall())

        return await self.read(id, choose)


@pytest_asyncio.fixture
async def ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ones]:
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    monkeypatch.setattr(closed, "_MOST_OPEN", 1)
    ones = Ones(tmp_path, tmp_path / "copies")
    yield ones
    await ones.close()
    assert ones.copies == 0


async def test_an_experiment_is_evicted_while_a_read_of_it_waits(ones: Ones, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = await ones.count("exp0")
    await ones.entry("exp1")
    free, first, second = threading.Event(), asyncio.Event(), asyncio.Event()
    with ThreadPoolExecutor(1) as readers:
        monkeypatch.setattr(database, "_read_threads", readers)
        readers.submit(free.wait, 20)
        reads = [asyncio.create_task(ones.count("exp0", first))]
        await first.wait()
        reads.append(asyncio.create_task(ones.count("exp1", second)))
        await second.wait()
        free.set()
        assert await asyncio.gather(*reads) == [trials, trials]
    assert ones.copies == 1


async def test_a_release_is_cancelled_while_a_read_waits(ones: Ones, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = await ones.count("exp0")
    free, chosen = threading.Event(), asyncio.Event()
    with ThreadPoolExecutor(1) as readers:
        monkeypatch.setattr(database, "_read_threads", readers)
        readers.submit(free.wait, 20)
        reading = asyncio.create_task(ones.count("exp0", chosen))
        await chosen.wait()
        releasing = asyncio.create_task(ones.release("exp0"))
        await asyncio.sleep(0)  # it has begun
        await ended(releasing)
        asyncio.get_running_loop().call_later(0, free.set)
        await ones.close()
        assert ones.copies == 0
        assert await reading == trials


async def test_a_request_that_is_cancelled_leaves_no_copy(ones: Ones, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, go_on, copy = threading.Event(), threading.Event(), migrate.upgraded_copy

    def copied_slowly(path: Path, kind: str, folder: Path) -> Path | None:
        made = copy(path, kind, folder)
        copied.set()
        assert go_on.wait(20)
        return made

    monkeypatch.setattr(migrate, "upgraded_copy", copied_slowly)
    reading = asyncio.create_task(ones.count("exp0"))
    assert await asyncio.to_thread(copied.wait, 20)
    assert ones.copies == 1
    reading.cancel()
    asyncio.get_running_loop().call_later(0, go_on.set)
    await asyncio.wait({reading})
    assert reading.cancelled() and ones.copies == 0
