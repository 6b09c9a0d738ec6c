"""Two experiments of one account, with 300 jobs each and an outage of two minutes: in virtual time, with jobs that are
pretended. What was asked, and when, is judged by the fake's own log."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nni_manager.code_archive import pack
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import NoRoom, Platform
from nni_manager.platform_kit.testing import Recorder
from nni_manager.shared_storage.pull import Pull
from tests.platforms.keeper_world import job_spec

JOBS, CONCURRENCY, RUN_S = 300, 60, 90.0
OUTAGE_FROM_S, OUTAGE_S = 150.0, 120.0
#: Since the epoch; the loop's clock begins at 0.
EPOCH_S = 1_700_000_000.0


def now_s() -> float:
    return EPOCH_S + asyncio.get_running_loop().time()


class Experiment:
    """What the scheduler does, and no more. Looks every `poll_s`."""

    def __init__(self, platform: Platform[Any], recorder: Recorder, poll_s: float) -> None:
        self.platform, self.recorder, self._poll_s = platform, recorder, poll_s
        self.open: list[JobHandle] = []
        #: What the service was told to call a job → job name.
        self.names: dict[str, str] = {}
        #: Job name → how it ended, and when that was seen.
        self.ended: dict[str, tuple[JobState, float]] = {}

    async def run(self) -> None:
        waiting = [self._spec(number) for number in range(JOBS)]
        async with self.platform, asyncio.TaskGroup() as group:
            group.create_task(self._again(lambda: self._submit(waiting), lambda: bool(waiting)))
            group.create_task(self._again(self._look, lambda: len(self.ended) < JOBS))

    async def _again(self, act: Callable[[], Awaitable[None]], is_needed: Callable[[], bool]) -> None:
        while is_needed():
            with contextlib.suppress(PlatformUnavailable):
                await act()
            await asyncio.sleep(self._poll_s)

    async def _submit(self, waiting: list[JobSpec]) -> None:
        while waiting and len(self.open) < CONCURRENCY:
            try:
                answer = await self.platform.submit(waiting[0])
            except PlatformUnavailable as error:
                waiting[0] = dataclasses.replace(waiting[0], is_repeat=waiting[0].is_repeat or not error.refused)
                raise
            if isinstance(answer, NoRoom):
                return
            self.open.append(self.recorder.accept(answer))
            self.names[answer.data] = answer.job_name
            waiting.pop(0)

    async def _look(self) -> None:
        if not self.open:
            return
        reports = await self.platform.observe(self.open)
        assert JobState.LOST not in {report.state for report in reports.values()}
        done = [handle for handle, report in reports.items() if report.state.is_final]
        self.ended |= {handle.job_name: (reports[handle].state, now_s()) for handle in done}
        self.open = [handle for handle in self.open if handle not in done]
        if done:
            await self.platform.forget(done)

    def _spec(self, number: int) -> JobSpec:
        id, trial_id = self.recorder.experiment_id, f"t{number:04}"
        return job_spec(
            name=job_name(id, trial_id, 1),
            experiment_id=id,
            trial_id=trial_id,
            attempt=1,
            command="true",
            caller_environment={},
            code_directory="/nowhere",
            nonce="n0nce",
            attempt_directory=str(self.recorder.folder / "trials" / trial_id),
        )


async def run_two(
    folder: Path, make: Callable[[Recorder], Platform[Any]], set_outage: Callable[[bool], None], *, poll_s: float
) -> list[Experiment]:
    """All jobs of both have ended well. `make`: an adapter of the account; its fake starts now."""
    first = Recorder("one")
    (folder / "source").mkdir()
    experiments = []
    for recorder in (first, first.other("two")):
        recorder.folder = folder / recorder.experiment_id
        (recorder.folder / "code").mkdir(parents=True)
        recorder.code_archive = pack(folder / "source", recorder.folder / "code").path
        experiments.append(Experiment(make(recorder), recorder, poll_s))
    async with asyncio.TaskGroup() as group:
        group.create_task(_outage(set_outage))
        for one in experiments:
            group.create_task(one.run())
    ends = [state for one in experiments for state, _ in one.ended.values()]
    assert ends == [JobState.SUCCEEDED] * 2 * JOBS
    return experiments


async def _outage(set_outage: Callable[[bool], None]) -> None:
    await asyncio.sleep(OUTAGE_FROM_S)
    set_outage(True)
    await asyncio.sleep(OUTAGE_S)
    set_outage(False)


def most_in(times: Iterable[float], window_s: float) -> int:
    """Calls in the busiest window of this length."""
    ordered = sorted(times)
    return max(bisect.bisect_left(ordered, time + window_s) - index for index, time in enumerate(ordered))


def check_lag(experiments: Sequence[Experiment], ended_s: Mapping[str, float], most_s: float) -> None:
    """No end that no outage hides is seen later. `ended_s`: job name → when it ended, as the fake says."""
    lags = []
    for one in experiments:
        for name, (_, seen_s) in one.ended.items():
            if not OUTAGE_FROM_S - RUN_S <= ended_s[name] - EPOCH_S <= OUTAGE_FROM_S + OUTAGE_S:
                lags.append(seen_s - ended_s[name])
    assert lags, "some ended outside of the outage"
    print(f"status lag: median {sorted(lags)[len(lags) // 2]:.1f} s, most {max(lags):.1f} s of {len(lags)}")
    assert max(lags) <= most_s


class NothingRead(Pull):
    """Pretended jobs leave nothing."""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def is_over(self, job_name: str) -> bool:
        return True


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time does not pass in threads."""
    monkeypatch.setattr(asyncio, "to_thread", _inline)


async def _inline(function: Any, *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)
