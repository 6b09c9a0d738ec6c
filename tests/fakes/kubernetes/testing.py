"""What tests need of a cluster: a fake one, or with NNI_TEST_KUBECONFIG a namespace of a real one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes_asyncio import client, config

from tests.fakes.kubernetes.control import Control
from tests.fakes.kubernetes.server import Server
from tests.fakes.kubernetes.settings import Settings

#: A kubeconfig whose cluster has the operators, and whose user may make namespaces.
REAL = "NNI_TEST_KUBECONFIG"


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
    def control(self) -> Control:
        assert self.server is not None, "a real cluster cannot be told to misbehave"
        return self.server.control

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
    async with Server(Settings(folder / "cluster", **{"back_off": 0.1, **settings})) as server:
        yield TestCluster(server.kubeconfig(folder / "kubeconfig"), "default", server)


@contextlib.asynccontextmanager
async def _namespace(kubeconfig: Path) -> AsyncIterator[TestCluster]:
    found = TestCluster(kubeconfig, f"tests-{uuid.uuid4().hex[:8]}", None)
    async with found.client() as api:
        core = client.CoreV1Api(api)
        await core.create_namespace({"metadata": {"name": found.namespace}})
        try:
            yield found
        finally:
            await core.delete_namespace(found.namespace)


async def until(look: Callable[[], Awaitable[Any]], seconds: float = 20.0) -> Any:
    """The first answer that is neither None nor False."""
    async with asyncio.timeout(seconds):
        while True:
            found = await look()
            if found is not None and found is not False:
                return found
            await asyncio.sleep(0.02)
