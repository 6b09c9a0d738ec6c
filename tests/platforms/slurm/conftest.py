"""One Slurm of each version for all tests of a session that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.slurm.cluster import SlurmCluster
from tests.fakes.slurm.clusters import EVERY_VERSION, SlurmClusters, clusters


@pytest.fixture(scope="package")
def slurm_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmClusters]:
    with clusters(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(params=EVERY_VERSION)
def slurm(request: pytest.FixtureRequest, slurm_clusters: SlurmClusters) -> SlurmCluster:
    return slurm_clusters.of(request.param)
