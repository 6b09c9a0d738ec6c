"""Tests of what a training service decides about its own jobs: why they wait, and when it ends them.

The third part of the suite; `platform_contract` inherits it.
"""

from __future__ import annotations

import pytest

from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait
from nni_manager.platform_kit.testing.observing import accepted, check_told, finish, needs, running, seen, seen_as
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
