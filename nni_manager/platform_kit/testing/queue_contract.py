"""Tests of what a training service decides about its own jobs: why they wait, and when it ends them.

The third part of the suite; `platform_contract` inherits it.
"""

from __future__ import annotations

import asyncio

import pytest

from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import Wait
from nni_manager.platform_kit.testing.observing import (
    accepted,
    check_results,
    check_told,
    finish,
    insist,
    needs,
    result_line,
    running,
    seen,
    seen_as,
    told_end,
)
from nni_manager.platform_kit.testing.world import Feature, World


@pytest.mark.asyncio
class QueueContract:
    """The contract's tests of waits and of ends that the service decides; inherit `PlatformContract`."""

    async def test_wait_reason_is_reported_and_updated(self, world: World) -> None:
        """Item 21: the reason why a job waits is reported, and reported again when it changes."""
        needs(world, Feature.WAIT_REASONS)
        told: list[Wait] = []
        async with world.make() as platform:
            handle = await accepted(world, platform, "a")
            for number in (0, 1):
                words = await world.hold_back(handle, number)
                report = await seen_as(
                    world,
                    platform,
                    handle,
                    lambda r, w=words: r.wait is not None and w in r.wait.sentence,  # type: ignore[misc]  # its default
                    f"waiting because of {words!r}",
                )
                assert report.state is JobState.PENDING and report.wait is not None
                check_told(world, report.wait.sentence)
                told.append(report.wait)
            assert told[0] != told[1]
            await world.begin(handle)
            report = await seen(world, platform, handle, JobState.RUNNING)
            assert report.wait is None
            await finish(world, platform, [handle])

    async def test_job_that_never_starts_waits_without_hope(self, world: World) -> None:
        """Item 31: a job that the platform will never start as it is waits, and says so until that changes."""
        needs(world, Feature.HOPELESS_WAITS)
        async with world.make() as platform:
            handle, other = await accepted(world, platform, "a"), await running(world, platform, "b")
            words = await world.strand(handle)
            what = f"waiting without hope because of {words!r}"
            report = await seen_as(
                world,
                platform,
                handle,
                lambda r: r.wait is not None and r.wait.is_hopeless and words in r.wait.sentence,
                what,
            )
            assert report.state is JobState.PENDING and report.wait is not None
            check_told(world, report.wait.sentence)
            await world.begin(handle)
            await finish(world, platform, [handle, other])

    async def test_job_cancelled_by_a_user_is_reported_as_cancelled(self, world: World) -> None:
        """Item 27: a job that a user cancelled is reported as cancelled."""
        needs(world, Feature.PORTAL)
        async with world.make() as platform:
            assert platform.capabilities.has_portal
            handle, other = await running(world, platform, "a"), await running(world, platform, "b")
            await world.cancel_in_portal(handle)
            await seen(world, platform, handle, JobState.CANCELLED)
            await finish(world, platform, [other])

    async def test_preemption_by_a_queue_is_not_counted(self, world: World) -> None:
        """Item 30: a job whose place its queue gave to another is preempted, and no retry is counted."""
        needs(world, Feature.QUEUE)
        async with world.make() as platform:
            handle, other = await running(world, platform, "a"), await running(world, platform, "b")
            await world.displace(handle)
            assert (await seen(world, platform, handle, JobState.PREEMPTED)).is_uncounted
            await finish(world, platform, [other])

    async def test_job_ended_by_the_time_limit_is_reported_so(self, world: World) -> None:
        """Item 32: a job that the platform's own time limit ended has failed with TIMEOUT; its results are kept."""
        needs(world, Feature.TIME_LIMIT)
        async with world.make() as platform:
            handle, other = await running(world, platform, "a"), await running(world, platform, "b")
            if Feature.RESULTS not in world.absent:
                await world.report(handle, result_line(0))
            await world.exceed_limit(handle)
            report = await seen(world, platform, handle, JobState.FAILED)
            assert report.cause is Reason.TIMEOUT
            check_told(world, report.message)
            if Feature.RESULTS not in world.absent:
                await check_results(world, handle, [result_line(0)])
            await finish(world, platform, [other])

    async def test_announced_end_reaches_the_job(self, world: World) -> None:
        """Item 33: a job is told that the platform will take it away, and goes on until then."""
        needs(world, Feature.ENDING_NOTICE)
        async with world.make() as platform:
            handle, other = await running(world, platform, "a"), await running(world, platform, "b")
            await world.environment(handle)  # its command runs, and so its runner hears the notice
            await world.announce_end(handle)
            async with asyncio.timeout(world.patience_s):
                while not await world.knows_of_end(handle):  # noqa: ASYNC110 (nothing tells of a new file)
                    await asyncio.sleep(_LOOK_AGAIN_S)
            assert not await world.knows_of_end(other)
            await finish(world, platform, [handle, other])

    async def test_second_run_of_a_job_is_another_container(self, world: World) -> None:
        """Item 34: a job that runs again under its id goes on: the end of its first run decides nothing."""
        needs(world, Feature.SECOND_RUN)
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            await world.report(handle, result_line(0))
            await check_results(world, handle, [result_line(0)])
            await world.run_again(handle)
            report = await seen(world, platform, handle, JobState.RUNNING)
            await world.report(handle, result_line(1))
            await check_results(world, handle, [result_line(0), result_line(1)])
            await world.end(handle, 0)
            report = await seen(world, platform, handle, *_FINAL)
            assert report.state is JobState.SUCCEEDED
            first, second = world.recorder.containers[handle.job_name]
            assert first != second and (await told_end(world, handle))["container"] == second

    async def test_overlooked_job_is_lost_only_if_it_stays_so(self, world: World) -> None:
        """Item 35: a job that one round lacks is not lost; one that is gone is."""
        needs(world, Feature.OVERLOOKED, Feature.VANISH)
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            for _ in range(2):
                await world.overlook(handle, is_listed=False)
                report = (await insist(world, lambda: platform.observe([handle])))[handle]
                assert report.state is JobState.UNKNOWN
                await world.overlook(handle, is_listed=True)
                await seen(world, platform, handle, JobState.RUNNING)
            await world.vanish(handle)
            await seen(world, platform, handle, JobState.LOST)


_LOOK_AGAIN_S = 0.02
_FINAL = tuple(state for state in JobState if state.is_final)
