"""What is noticed of trials that run in place: long output, and work that events ask for at a pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nni_manager.domain.experiment import LiveSpec
from nni_manager.scheduler.turns import output_watch
from nni_manager.scheduler.turns.output_watch import OutputWatch, longest_output
from nni_manager.scheduler.turns.paced import Paced
from nni_manager.store.connection import connect
from nni_manager.store.database import Database
from nni_manager.store.experiment import trial_warnings
from tests.store import life

pytestmark = pytest.mark.unit


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    connection = connect(path)
    life.add(connection, "aaaaa")
    life.start(connection, "aaaaa")
    connection.close()
    database = Database(path)
    yield database
    await database.close()


def watch(database: Database, trials: Path, most: int, *, in_place: bool = True) -> OutputWatch:
    services = {
        "local": SimpleNamespace(platform=SimpleNamespace(capabilities=SimpleNamespace(runs_in_place=in_place)))
    }
    spec = cast(LiveSpec, SimpleNamespace(now=SimpleNamespace(max_log_bytes=most)))
    return OutputWatch(services=cast(Any, services), database=database, spec=spec, trials=trials, changed=lambda: None)


def write(trials: Path, attempt: str, **logs: int) -> None:
    (trials / attempt).mkdir(parents=True, exist_ok=True)
    for name, size in logs.items():
        (trials / attempt / name).write_bytes(b"x" * size)


def test_longest_of_the_attempts_above_the_limit_is_named(tmp_path: Path) -> None:
    write(tmp_path, "aaaaa", stdout=60, stderr=40)
    write(tmp_path, "bbbbb-2", stdout=50, stderr=90)
    attempts = [("aaaaa", 1), ("bbbbb", 2), ("ccccc", 1)]
    found = longest_output(tmp_path, attempts, 99)
    assert found == ("bbbbb", str(tmp_path / "bbbbb-2" / "stderr"), 90, 140)
    assert longest_output(tmp_path, attempts, 140) is None


async def test_running_trial_is_looked_at_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_watch, "_EVERY_S", 0.05)
    trials = tmp_path / "trials"
    write(trials, "aaaaa", stdout=10)
    looking = watch(database, trials, 100)
    looking._paced._every_s = 0.01
    looking.enter(start)
    await asyncio.sleep(0.2)
    assert await database.read(trial_warnings.load) == ()
    write(trials, "aaaaa", stdout=101)
    for _ in range(200):
        if found := await database.read(trial_warnings.load):
            break
        await asyncio.sleep(0.02)
    assert [one.code for one in found] == ["LONG_OUTPUT"]
    assert f"trial aaaaa wrote 101 B to {trials}/aaaaa/stdout" in found[0].message
    await looking.close()


async def test_output_elsewhere_is_not_looked_at(database: Database, tmp_path: Path) -> None:
    write(tmp_path, "aaaaa", stdout=101)
    looking = watch(database, tmp_path, 100, in_place=False)
    looking.enter(start)
    looking.note([("aaaaa", 1)])
    await looking.close()
    assert await database.read(trial_warnings.load) == ()


async def test_paced_work_covers_every_request_and_keeps_its_pace() -> None:
    at: list[float] = []

    async def work() -> None:
        at.append(asyncio.get_running_loop().time())
        if len(at) == 1:
            raise RuntimeError("a fault costs one run")

    paced = Paced(work, "test", every_s=0.1)
    for _ in range(5):
        paced.ask(start)
    await asyncio.sleep(0.05)
    paced.ask(start)
    await asyncio.sleep(0.2)
    assert len(at) == 2 and at[1] - at[0] >= 0.099
    paced.ask(start)
    await asyncio.sleep(0)
    paced.ask(start)
    await paced.close()
    assert len(at) == 4, "closing waits for nothing but the work"
