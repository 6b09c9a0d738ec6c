"""One Slurm for all tests of a session that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.slurm import cluster
from tests.fakes.slurm.cluster import SlurmCluster


@pytest.fixture(scope="package")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := cluster.missing():
        pytest.skip(reason)
    with cluster.running(tmp_path_factory.mktemp("slurm")) as running:
        yield running
