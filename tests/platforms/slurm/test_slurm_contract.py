"""Slurm keeps the contract, on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract, World
from tests.fakes.slurm.cluster import SlurmCluster
from tests.platforms.slurm.slurm_world import SlurmLoginWorld, SlurmWorld

pytestmark = [pytest.mark.machines, pytest.mark.contract, pytest.mark.timeout(180)]


class TestSlurmContract(PlatformContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm

    def make_world(self, directory: Path) -> World:
        return SlurmWorld(directory, self.slurm)


@pytest.mark.slurm
class TestSlurmLoginContract(PlatformContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, slurm: SlurmCluster) -> None:
        self.slurm = slurm

    def make_world(self, directory: Path) -> World:
        return SlurmLoginWorld(directory, self.slurm)
