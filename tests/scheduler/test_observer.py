"""Which jobs are observed, when, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import looptime
import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Capabilities, Delivery, Host
from nni_manager.scheduler.turns.observer import Observer
from nni_manager.store.connection import connect
from nni_manager.store.database import Database
from tests.scheduler.fake_platform import RUNNING, SUCCEEDED, FakePlatform
from tests.store import life

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]

A, B = "nni_exp_exp1_trial_aaaaa", "nni_exp_exp1_trial_bbbbb"


def handle(name: str) -> JobHandle:
    return JobHandle(platform="fake", version=1, job_name=name)


class Watch:
    """An observer and what it told."""

    def __init__(self, database: Database) -> None:
        self.told: list[Mapping[str, Observation]] = []

        async def deliver(*_: Any) -> Delivery:
            raise AssertionError("nothing is delivered here")

        host = Host(
            experiment_id="exp1",
            service="fake",
            wake=lambda name: self.observer.wake(name),
            deliver=deliver,
            followed=cast(Any, None),
            stored=cast(Any, None),
            connections=Connections(),
            folder=Path(),
            code=cast(Any, None),
            register=cast(Any, None),
            exited=cast(Any, None),
        )
        self.platform = FakePlatform({}, host)
        self.observer = Observer(
            service="local",
            database=database,
            observe=self._observe,
            tell=self.told.append,
            capabilities=Capabilities(watches=True, reads_files=False, slow_poll_s=20),
        )

    async def _observe(self, handles: Sequence[JobHandle]) -> Mapping[JobHandle, Observation] | None:
        try:
            return await self.platform.observe(handles)
        except PlatformUnavailable:
            return None


@pytest.fixture
async def watch(path: Path) -> AsyncIterator[Watch]:
    database = Database(path)
    yield Watch(database)
    await database.close()


async def test_only_changed_jobs_are_observed(watch: Watch) -> None:
    await watch.observer.look()
    for name in (A, B):
        watch.observer.add(handle(name))
        watch.platform.change(name, RUNNING)
    await watch.observer.look()
    watch.platform.change(B, SUCCEEDED)
    await watch.observer.look()
    assert watch.platform.observed == [[A, B], [B]]
    assert watch.told == [{A: RUNNING, B: RUNNING}, {B: SUCCEEDED}]


async def test_new_process_observes_stored_jobs(watch: Watch, path: Path) -> None:
    connection = connect(path)
    life.add(connection, "aaaaa")
    life.start(connection, "aaaaa")
    life.add(connection, "bbbbb", 1)
    life.start(connection, "bbbbb")
    life.end(connection, "bbbbb")
    connection.close()
    await watch.observer.look()
    assert watch.platform.observed == [[A]]
    assert watch.told == [{A: Observation(state=JobState.LOST)}]


async def test_closed_attempt_is_not_observed(watch: Watch) -> None:
    watch.observer.add(handle(A))
    watch.observer.remove(A)
    watch.observer.remove(A)
    watch.observer.wake(A)
    await watch.observer.look()
    assert (watch.platform.observed, watch.told) == ([], [])


async def test_short_jobs_one_after_another_are_not_looked_at() -> None:
    watch = Watch(cast(Database, Empty()))
    watch.observer._look_at_all = False
    with looptime.enabled(strict=True):
        task = asyncio.create_task(watch.observer.run())
        for number in range(20):
            watch.observer.add(handle(f"job{number}"))
            await asyncio.sleep(0.03)
            watch.observer.remove(f"job{number}")
        watch.observer.add(handle(A))
        watch.platform.jobs[A] = RUNNING
        await asyncio.sleep(0.049)
        assert watch.platform.observed == []
        await asyncio.sleep(0.002)
        assert watch.platform.observed == [[A]]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_changes_during_an_outage_are_not_forgotten(watch: Watch) -> None:
    await watch.observer.look()
    watch.observer.add(handle(A))
    watch.platform.jobs[A] = SUCCEEDED
    watch.platform.raises["observe"] = [PlatformUnavailable("away")]
    await watch.observer.look()
    watch.observer.wake(B)
    await watch.observer.look()
    assert watch.told == [{A: SUCCEEDED}]


async def test_a_bug_of_the_adapter_is_not_hidden(watch: Watch) -> None:
    watch.observer.add(handle(A))
    watch.platform.raises["observe"] = [KeyError("phase")]
    with pytest.raises(KeyError):
        await watch.observer.look()


async def test_observer_runs_on_changes(watch: Watch) -> None:
    seen = asyncio.Event()
    watch.observer.add(handle(A))
    watch.platform.jobs[A] = RUNNING
    watch.observer._tell = lambda reports: (watch.told.append(reports), seen.set())[0]
    task = asyncio.create_task(watch.observer.run())
    await asyncio.wait_for(seen.wait(), 5)
    seen.clear()
    watch.platform.change(A, SUCCEEDED)
    await asyncio.wait_for(seen.wait(), 5)
    assert watch.told == [{A: RUNNING}, {A: SUCCEEDED}]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Empty:
    """A database without jobs."""

    async def read(self, _: object) -> dict[str, JobHandle]:
        return {}


class Asked(Watch):
    """A service that tells nothing by itself."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.observer.capabilities = replace(self.observer.capabilities, watches=False)

    async def looks(self, seconds: float) -> list[float]:
        """The times of its requests, in seconds from now, within this many seconds."""
        loop, moments = asyncio.get_running_loop(), []

        async def observe(handles: Sequence[JobHandle]) -> Mapping[JobHandle, Observation]:
            moments.append(round(loop.time() - begun, 1))
            return dict.fromkeys(handles, RUNNING)

        self.observer._observe = observe
        begun = loop.time()
        task = asyncio.create_task(self.observer.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return moments


async def test_short_job_is_not_observed_after_its_start() -> None:
    with looptime.enabled(strict=True):
        watch = Watch(cast(Any, Empty()))
        task = asyncio.create_task(watch.observer.run())
        for name in (A, B):
            watch.platform.jobs[name] = RUNNING
            watch.observer.add(handle(name))
        await asyncio.sleep(0.02)
        assert watch.platform.observed == []
        watch.observer.remove(A)  # its end was told, and decided on
        await asyncio.sleep(0.1)
        assert watch.platform.observed == [[B]]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_service_without_watch_is_polled_at_growing_intervals(path: Path) -> None:
    database = Database(path)
    asked = Asked(cast(Database, Empty()))  # a thread would let the loop's own time run on
    asked.observer._look_at_all = False
    with looptime.enabled(strict=True):
        asked.observer.add(handle(A))
        assert await asked.looks(60) == [0, 1, 3, 7, 15, 31, 51]
    await database.close()


async def test_a_hundred_starts_are_one_question_a_second(path: Path) -> None:
    database = Database(path)
    asked = Asked(database)
    await asked.observer.look()
    with looptime.enabled(strict=True):
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_later(number / 20, asked.observer.add, handle(f"job-{number}"))
        assert len(await asked.looks(5)) <= 6
    await database.close()


async def test_all_jobs_are_observed_periodically(watch: Watch) -> None:
    await watch.observer.look()
    watch.observer.add(handle(A))
    await watch.observer.look()
    assert watch.told == [{A: Observation(state=JobState.LOST)}]
    watch.observer._news.clear()
    watch.platform.jobs[A] = SUCCEEDED  # without a notification
    seen = asyncio.Event()
    watch.observer._tell = lambda reports: (watch.told.append(reports), seen.set())[0]
    loop = asyncio.get_running_loop()
    with looptime.enabled(strict=True):
        begin = loop.time()
        task = asyncio.create_task(watch.observer.run())
        await seen.wait()
        assert loop.time() - begin == pytest.approx(20, abs=0.1)
    assert watch.told[-1] == {A: SUCCEEDED}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_failed_submission_is_reported_once_with_its_handle(watch: Watch) -> None:
    await watch.observer.look()
    watch.observer.add(handle(A))
    untaken = Observation(state=JobState.LOST, is_untaken=True)
    watch.platform.jobs[A] = untaken
    await watch.observer.look()
    watch.observer.wake(A)
    await watch.observer.look()
    assert watch.told == [{A: replace(untaken, about=handle(A))}]
