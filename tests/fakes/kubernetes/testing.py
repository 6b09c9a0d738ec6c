"""Clusters for tests: a fake one, or with NNI_TEST_KUBECONFIG a namespace of a real one.

On a real cluster, tests that need features of the fake are skipped with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from tests.fakes.kubernetes.control import Control
from tests.fakes.kubernetes.server import Server
from tests.fakes.kubernetes.settings import Settings

#: A kubeconfig with the right to create namespaces.
REAL = "NNI_TEST_KUBECONFIG"
#: Namespace of the tests' objects. One test at a time uses it, and it is empty at the start.
NAMESPACE = f"tests-{uuid.uuid4().hex[:8]}"
#: Image of all containers; on a real cluster one with a shell and Python.
IMAGE = os.environ.get("NNI_TEST_IMAGE", "python:3.12-slim")
#: Factor for durations on a real cluster.
_SLOWER = 6.0
_LOOK_AGAIN_S = 0.02


@dataclass(frozen=True)
class TestCluster:
    """The place for a test's objects, which are removed afterwards."""

    __test__ = False

    kubeconfig: Path
    namespace: str
    #: Control of the fake's faults; None: a real cluster.
    server: Server | None

    @property
    def is_real(self) -> bool:
        return self.server is None

    @property
    def fake(self) -> Server:
        """Skips the test on a real cluster."""
        self.needs_fake("a real cluster has no control route for faults")
        assert self.server is not None
        return self.server

    def needs_fake(self, why: str) -> None:
        """Skips the test on a real cluster."""
        if self.server is None:
            pytest.skip(f"needs the fake: {why}")

    @property
    def control(self) -> Control:
        """Skips the test on a real cluster."""
        return self.fake.control

    @contextlib.asynccontextmanager
    async def client(self, kubeconfig: Path | None = None) -> AsyncIterator[client.ApiClient]:
        """The official client, of the administrator or of the kubeconfig's user."""
        configuration = client.Configuration()
        await config.load_kube_config(str(kubeconfig or self.kubeconfig), client_configuration=configuration)
        async with client.ApiClient(configuration) as api:
            yield api


@contextlib.asynccontextmanager
async def cluster(folder: Path, **settings: Any) -> AsyncIterator[TestCluster]:
    """A fake cluster with fast retries, or a real one."""
    if os.environ.get(REAL):
        async with _namespace(Path(os.environ[REAL])) as found:
            yield found
        return
    namespaces = ("default", "kube-system", NAMESPACE)
    given = {"back_off": 0.1, "namespaces": namespaces, **settings}
    async with Server(Settings(folder / "cluster", **given)) as server:
        yield TestCluster(server.kubeconfig(folder / "kubeconfig"), NAMESPACE, server)


@contextlib.asynccontextmanager
async def _namespace(kubeconfig: Path) -> AsyncIterator[TestCluster]:
    """Delete a namespace and wait until its name is free."""
    found = TestCluster(kubeconfig, NAMESPACE, None)
    async with found.client() as api:
        core = client.CoreV1Api(api)
        await core.create_namespace({"metadata": {"name": NAMESPACE}})
        try:
            yield found
        finally:
            await core.delete_namespace(NAMESPACE)
            await until(lambda: _is_gone(core))


async def _is_gone(core: client.CoreV1Api) -> bool:
    try:
        await core.read_namespace(NAMESPACE)
    except client.ApiException as error:
        if error.status == 404:
            return True
        raise
    return False


def patience(seconds: float) -> float:
    """Maximum duration, given the maximum on the fake."""
    return seconds * (_SLOWER if os.environ.get(REAL) else 1.0)


async def until(look: Callable[[], Awaitable[Any]], seconds: float = 20.0) -> Any:
    """The first answer that is neither None nor False. `seconds`: limit on the fake."""
    async with asyncio.timeout(patience(seconds)):
        while True:
            found = await look()
            if found is not None and found is not False:
                return found
            await asyncio.sleep(_LOOK_AGAIN_S)
