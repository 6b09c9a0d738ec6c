"""The platform contract for adapters with a cluster in the test's own process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nni_manager.domain.job import JobState
from nni_manager.platform_kit.testing import PlatformContract, World
from nni_manager.platform_kit.testing.observing import leftovers, new_leftovers, running, seen, unavailable

#: Seconds that the scheduler gives an adapter to leave.
_EXIT_S = 10.0


class KubernetesContract(PlatformContract):
    """What is left shows once the cluster is gone, too."""

    async def test_nothing_is_left_after_leaving(self, tmp_path: Path) -> None:  # type: ignore[override]
        """16"""
        before = leftovers()
        async with self.make_world(tmp_path) as world, world.make() as platform:
            handle = await running(world, platform, "a")
            await platform.read_file(handle, world.log_name, 0, 100)
            await world.end(handle, 0)
            await seen(world, platform, handle, JobState.SUCCEEDED)
        await _check_none(before)

    async def test_nothing_is_left_after_leaving_during_an_outage(self, tmp_path: Path) -> None:  # type: ignore[override]
        """16"""
        before = leftovers()
        async with self.make_world(tmp_path) as world:
            await _leave_in_an_outage(world)
        await _check_none(before)

    async def test_leaving_works_while_nothing_answers(self, tmp_path: Path) -> None:  # type: ignore[override]
        """22"""
        before = leftovers()
        async with self.make_world(tmp_path) as world:
            platform = world.make()
            await platform.__aenter__()
            handle = await running(world, platform, "a")
            await world.start_hanging()
            async with asyncio.timeout(_EXIT_S):
                await platform.__aexit__(None, None, None)
            await world.end_hanging()
            async with world.make() as platform:
                await seen(world, platform, handle, JobState.RUNNING)
        await _check_none(before)


async def _check_none(before: frozenset[str]) -> None:
    """Asserts that nothing is left which was not there before."""
    left = await new_leftovers(before, 5.0)
    assert not left, sorted(left)


async def _leave_in_an_outage(world: World) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.start_outage()
        await unavailable(world, lambda: platform.observe([handle]))
