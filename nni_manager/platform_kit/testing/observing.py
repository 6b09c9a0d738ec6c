"""Looking at a job again and again until something is seen, as the scheduler does: woken, or by the clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobReport, JobSpec, JobState
from nni_manager.platform_kit.contract import NoRoom, Platform
from nni_manager.platform_kit.testing.world import World

_T = TypeVar("_T")
#: Seconds between two looks at a platform that tells nothing by itself.
_LOOK_AGAIN_S = 0.02


async def accepted(world: World, platform: Platform, trial_id: str) -> JobHandle:
    """Submits a job, as soon as the platform can be asked and has room."""
    return await taken(world, platform, world.job(trial_id))


async def taken(world: World, platform: Platform, spec: JobSpec) -> JobHandle:
    """The same with this job."""
    async with asyncio.timeout(world.patience_s):
        while True:
            world.recorder.news.clear()
            answer = await insist(world, lambda: platform.submit(spec))
            if not isinstance(answer, NoRoom):
                return world.recorder.accept(answer)
            await _next_look(world, platform)


async def running(world: World, platform: Platform, trial_id: str) -> JobHandle:
    """Submits a job and waits until it is seen running."""
    handle = await accepted(world, platform, trial_id)
    await world.begin(handle)
    await seen(world, platform, handle, JobState.RUNNING)
    return handle


async def seen(world: World, platform: Platform, handle: JobHandle, *states: JobState) -> JobReport:
    """The first report with one of these states. A watching adapter has to wake us for it."""
    last: JobReport | None = None
    try:
        async with asyncio.timeout(world.patience_s):
            while True:
                world.recorder.news.clear()
                with suppress(PlatformUnavailable):
                    last = (await platform.observe([handle]))[handle]
                    if last.state in states:
                        return last
                await _next_look(world, platform)
    except TimeoutError:
        pytest.fail(f"{handle.job_name} was never {' or '.join(states)} within {world.patience_s} s; last: {last}")


async def told_end(world: World, handle: JobHandle) -> dict[str, Any]:
    """What was told of its runner's word about the end, as soon as it is."""
    async with asyncio.timeout(world.patience_s):
        while handle.job_name not in world.recorder.ends:
            world.recorder.news.clear()
            await world.recorder.news.wait()
    word: dict[str, Any] = json.loads(world.recorder.ends[handle.job_name])
    return word


async def insist(world: World, call: Callable[[], Awaitable[_T]]) -> _T:
    """Calls again while the platform is unavailable: some connect when they are entered, some a moment later."""
    async with asyncio.timeout(world.patience_s):
        while True:
            try:
                return await call()
            except PlatformUnavailable:
                await asyncio.sleep(_LOOK_AGAIN_S)


async def unavailable(world: World, call: Callable[[], Awaitable[object]]) -> object:
    """Calls again until the platform is unavailable: an outage may be noticed a moment later.

    One that is told for each job, as of a machine among others, will do. Answers the error or the reports.
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


async def _next_look(world: World, platform: Platform) -> None:
    if platform.capabilities.watches:
        await world.recorder.news.wait()
    else:
        await asyncio.sleep(_LOOK_AGAIN_S)
