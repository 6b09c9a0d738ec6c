"""Observes a job repeatedly until a condition holds, as the scheduler does: on events, or by the clock."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.reason import Reason
from nni_manager.platform_kit.contract import NoRoom, Platform
from nni_manager.platform_kit.testing.recorder import Recorder
from nni_manager.platform_kit.testing.world import Feature, World

_T = TypeVar("_T")
#: Causes that an adapter may report.
_CAUSES = (None, Reason.OUT_OF_MEMORY, Reason.SUBMIT_REJECTED, Reason.TIMEOUT)
#: Seconds between two observations of a platform without events.
_LOOK_AGAIN_S = 0.02


def needs(world: World, *features: Feature) -> None:
    """Skips the test with the world's reason if one of the features is absent."""
    for feature in features:
        if feature in world.absent:
            pytest.skip(f"{feature}: {world.absent[feature]}")


async def accepted(world: World, platform: Platform[Any], trial_id: str) -> JobHandle:
    """Submits a job, as soon as the platform is reachable and has room."""
    return await taken(world, platform, world.job(trial_id))


async def taken(world: World, platform: Platform[Any], spec: JobSpec, recorder: Recorder | None = None) -> JobHandle:
    """Submits this job, as soon as the platform is reachable and has room.

    `recorder`: of the platform's host, if it is not the world's.
    """
    recorder = recorder or world.recorder
    async with asyncio.timeout(world.patience_s):
        while True:
            recorder.news.clear()  # first, as later events are news
            answer = await insist(world, lambda: platform.submit(spec))
            if not isinstance(answer, NoRoom):
                return recorder.accept(answer)
            await _next_look(recorder, platform)


async def running(world: World, platform: Platform[Any], trial_id: str) -> JobHandle:
    """Submits a job and waits until it is observed running."""
    return await run(world, platform, world.job(trial_id))


async def run(world: World, platform: Platform[Any], spec: JobSpec, recorder: Recorder | None = None) -> JobHandle:
    """Submits this job and waits until it is observed running."""
    handle = await taken(world, platform, spec, recorder)
    await world.begin(handle)
    await seen(world, platform, handle, JobState.RUNNING, recorder=recorder)
    return handle


async def seen(
    world: World, platform: Platform[Any], handle: JobHandle, *states: JobState, recorder: Recorder | None = None
) -> Observation:
    """The first report on a job that has one of these states."""
    what = " or ".join(states)
    return await seen_as(world, platform, handle, lambda report: report.state in states, what, recorder)


async def seen_as(
    world: World,
    platform: Platform[Any],
    handle: JobHandle,
    is_it: Callable[[Observation], bool],
    what: str,
    recorder: Recorder | None = None,
) -> Observation:
    """The first report on a job that is `what`. A watching adapter must wake us for it."""
    recorder = recorder or world.recorder
    last: Observation | None = None
    try:
        async with asyncio.timeout(world.patience_s):
            while True:
                recorder.news.clear()
                with suppress(PlatformUnavailable):
                    last = (await platform.observe([handle]))[handle]
                    assert last.cause in _CAUSES, "others are the manager's"
                    if is_it(last):
                        return last
                await _next_look(recorder, platform)
    except TimeoutError:
        pytest.fail(f"{handle.job_name} was never {what} within {world.patience_s} s; last: {last}")


async def finish(
    world: World, platform: Platform[Any], handles: Sequence[JobHandle], recorder: Recorder | None = None
) -> None:
    """Ends the running jobs: each reports its own result, succeeds, and is SUCCEEDED with only that result."""
    for number, handle in enumerate(handles):
        if Feature.RESULTS not in world.absent:
            await world.report(handle, result_line(number))
        await world.end(handle, 0)
    for number, handle in enumerate(handles):
        await seen(world, platform, handle, JobState.SUCCEEDED, recorder=recorder)
        if Feature.RESULTS not in world.absent:
            await check_results(world, handle, [result_line(number)], recorder)


async def check_results(
    world: World, handle: JobHandle, lines: Sequence[str], recorder: Recorder | None = None
) -> None:
    """Asserts that these lines are the only results of a job."""
    async with asyncio.timeout(world.patience_s):
        found = await world.arrived(handle, len(lines), recorder or world.recorder)
    assert found == list(lines)


def result_line(number: int) -> str:
    """A final result, as in an outbox."""
    return json.dumps({"type": "final", "value": number})


async def told_end(world: World, handle: JobHandle) -> dict[str, Any]:
    """The runner's report of the job's end, as soon as it exists."""
    async with asyncio.timeout(world.patience_s):
        while handle.job_name not in world.recorder.ends:
            world.recorder.news.clear()
            await world.recorder.news.wait()
    word: dict[str, Any] = json.loads(world.recorder.ends[handle.job_name])
    return word


def check_told(world: World, sentence: str) -> None:
    """Asserts that a sentence is suitable for users: not empty, without secrets."""
    assert sentence.strip()
    assert [secret for secret in world.secrets if secret in sentence] == []


async def insist(world: World, call: Callable[[], Awaitable[_T]]) -> _T:
    """Repeats while the platform is unavailable: some connect when they are entered, some a moment later."""
    async with asyncio.timeout(world.patience_s):
        while True:
            try:
                return await call()
            except PlatformUnavailable:
                await asyncio.sleep(_LOOK_AGAIN_S)


async def unavailable(world: World, call: Callable[[], Awaitable[object]]) -> object:
    """Repeats until the platform is unavailable: an outage may be noticed a moment later.

    Reports in which all jobs are unreachable, as of one machine, count too. Returns the error or the reports.
    """
    async with asyncio.timeout(world.patience_s):
        while True:
            try:
                answer = await call()
            except PlatformUnavailable as error:
                return error
            if isinstance(answer, dict) and all(report.unreachable for report in answer.values()):
                return answer
            await asyncio.sleep(_LOOK_AGAIN_S)


async def _next_look(recorder: Recorder, platform: Platform[Any]) -> None:
    if platform.capabilities.watches:
        await recorder.news.wait()
    else:
        await asyncio.sleep(_LOOK_AGAIN_S)


_OF_LOOPS = ("asyncio_", "uvloop_")


def leftovers() -> frozenset[str]:
    """The present leftovers of an adapter in this process, a line for each, constant over its life: tasks, threads,
    open files and connections. Linux only."""
    tasks = [f"task {task.get_name()}" for task in asyncio.all_tasks()]
    # a loop's own executor keeps its threads
    threads = [one.name for one in threading.enumerate() if not one.name.startswith(_OF_LOOPS)]
    return frozenset((*tasks, *(f"thread {name}" for name in threads), *_descriptors()))


async def new_leftovers(before: frozenset[str], patience_s: float) -> frozenset[str]:
    """New leftovers, once there are none or `patience_s` have passed: closing takes a moment."""
    for _ in range(int(patience_s / _LOOK_AGAIN_S)):
        if not leftovers() - before:
            break
        await asyncio.sleep(_LOOK_AGAIN_S)  # no event reports a closed descriptor
    return leftovers() - before


def _descriptors() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(f"descriptor {number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:  # the descriptor of the listing
            continue
    return found
