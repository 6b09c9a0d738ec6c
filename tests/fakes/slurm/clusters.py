"""One running cluster of each version for the tests of a module, started when the first test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.fakes.slurm import cluster
from tests.fakes.slurm.cluster import SlurmCluster
from tests.fakes.slurm.installation import OWN, SUITES
from tests.fakes.slurm.settings import ClusterKind

#: Parameters of a fixture: this machine's own Slurm, and in `make slurm` the others.
EVERY_VERSION = (OWN, *(pytest.param(version, marks=pytest.mark.slurm) for version in SUITES))


class SlurmClusters:
    """`folder`: empty, its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, SlurmCluster] = {}
        self._stack = ExitStack()

    def of(self, version: str) -> SlurmCluster:
        """The cluster of a version. Skips the test, with the reason, if there cannot be one."""
        if version not in self._running:
            self._running[version] = self._stack.enter_context(
                started(self._folder / version, ClusterKind(version=version))
            )
        return self._running[version]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def slurm_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmClusters]:
    """The clusters of a module. It assigns this fixture and `slurm` to names of its own."""
    found = SlurmClusters(tmp_path_factory.mktemp("slurm"))
    yield found
    found.close()


@pytest.fixture(params=EVERY_VERSION)
def slurm(request: pytest.FixtureRequest, slurm_clusters: SlurmClusters) -> SlurmCluster:
    return slurm_clusters.of(request.param)


@contextmanager
def started(folder: Path, kind: ClusterKind) -> Iterator[SlurmCluster]:
    """A context with a running cluster. Skips the test, with the reason, if there cannot be one."""
    if reason := cluster.missing(kind):
        pytest.skip(reason)
    with cluster.running(folder, kind) as found:
        yield found
