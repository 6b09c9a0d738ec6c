"""A Kubernetes cluster and its client; a real cluster skips tests of kinds that it does not serve, by name."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
from kubernetes_asyncio import client

from tests.fakes.kubernetes.testing import REAL, TestCluster, cluster

#: Answers of servers about an unknown kind: as text, or in a Status.
_NO_KIND = ("404 page not found", "could not find the requested resource")


@pytest.fixture
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TestCluster]:
    """A cluster with the settings of the closest mark `cluster`."""
    mark = request.node.get_closest_marker("cluster")
    async with cluster(tmp_path, **(mark.kwargs if mark else {})) as found:
        yield found


@pytest.fixture
async def api(world: TestCluster) -> AsyncIterator[client.ApiClient]:
    async with world.client() as found:
        yield found


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    try:
        return (yield)
    except Exception as error:
        told = str(getattr(error, "body", ""))
        if REAL in os.environ and any(words in told for words in _NO_KIND):
            pytest.skip(f"the cluster does not serve the kind: {told.strip()[:100]}")
        raise
