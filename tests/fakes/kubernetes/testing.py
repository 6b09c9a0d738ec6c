"""What tests need of a cluster: a fake one, or with NNI_TEST_KUBECONFIG a namespace of a real one.

On a real one, what only the fake offers is skipped, and says so.
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
#: Where tests put their objects: a namespace that each test has for itself, one after the other. Nothing else is there.
NAMESPACE = f"tests-{uuid.uuid4().hex[:8]}"
#: Of all containers: on a real cluster one with a shell and Python.
IMAGE = os.environ.get("NNI_TEST_IMAGE", "python:3.12-slim")
#: How much longer anything takes on a real cluster.
_SLOWER = 6.0
_LOOK_AGAIN_S = 0.02


@dataclass(frozen=True)
class TestCluster:
    """Where a test may put its objects; all are gone afterwards."""

    __test__ = False

    kubeconfig: Path
    namespace: str
    #: None: a real one, which misbehaves as it likes.
    server: Server | None

    @property
    def is_real(self) -> bool:
        return self.server is None

    @property
    def fake(self) -> Server:
        """Skips the test on a real cluster."""
        self.needs_fake("a real cluster cannot be looked into or told to misbehave")
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
        """The official client, of the administrator or of whom the kubeconfig is."""
        configuration = client.Configuration()
        await config.load_kube_config(str(kubeconfig or self.kubeconfig), client_configuration=configuration)
        async with client.ApiClient(configuration) as api:
            yield api


@contextlib.asynccontextmanager
async def cluster(folder: Path, **settings: Any) -> AsyncIterator[TestCluster]:
    """Fake, with quick retries, or real."""
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
    """Its name is free again afterwards."""
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
    """Seconds that something may take which takes so long at most on the fake."""
    return seconds * (_SLOWER if os.environ.get(REAL) else 1.0)


async def until(look: Callable[[], Awaitable[Any]], seconds: float = 20.0) -> Any:
    """The first answer that is neither None nor False. `seconds`: of the fake."""
    async with asyncio.timeout(patience(seconds)):
        while True:
            found = await look()
            if found is not None and found is not False:
                return found
            await asyncio.sleep(_LOOK_AGAIN_S)
