"""Slurm keeps the contract, on a real one of each version, on a login node and over SSH."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nni_manager.domain.job import JobState
from nni_manager.platform_kit.contract import Severity
from nni_manager.platform_kit.testing import PlatformContract, World
from nni_manager.platform_kit.testing.observing import finish, running, seen
from tests.fakes.slurm import clusters
from tests.fakes.slurm.cluster import SlurmCluster
from tests.platforms.slurm.slurm_world import SlurmLoginWorld, SlurmWorld

pytestmark = [pytest.mark.machines, pytest.mark.contract, pytest.mark.timeout(180)]
slurm_clusters, slurm = clusters.slurm_clusters, clusters.slurm


class TestSlurmContract(PlatformContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm

    def make_world(self, directory: Path) -> World:
        return SlurmWorld(directory, self.slurm)


@pytest.mark.slurm
class TestSlurmLoginContract(TestSlurmContract):
    def make_world(self, directory: Path) -> World:
        return SlurmLoginWorld(directory, self.slurm)


async def test_preflight_shows_the_limits_of_the_account(slurm: SlurmCluster, tmp_path: Path) -> None:
    async with SlurmWorld(tmp_path, slurm, qos="tight") as world:
        findings = await world.make().preflight()
    shown = {one.subject: one.sentence for one in findings if one.severity is Severity.FINE}
    assert shown["account"] == "the account lab has no limit on its number of jobs; QOS: normal, small, tight"


async def test_user_is_named_although_another_job_was_asked_about(slurm: SlurmCluster, tmp_path: Path) -> None:
    """All calls of a moment share one list of jobs."""
    async with SlurmWorld(tmp_path, slurm) as world, world.make() as platform:
        cancelled, other = await running(world, platform, "a"), await running(world, platform, "b")
        await world.cancel_in_portal(cancelled)
        await asyncio.sleep(2)  # Slurm ends it, and the list is too old to be used again
        await platform.observe([other])
        report = await seen(world, platform, cancelled, JobState.CANCELLED)
        assert report.message == "the job was cancelled on Slurm by root"
        await finish(world, platform, [other])
