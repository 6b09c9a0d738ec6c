"""Credentials that are read again, and credentials that the server no longer accepts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.kubernetes.api.access import Access
from nni_manager.kubernetes.api.client import Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.informer import Informer
from nni_manager.kubernetes.api.names import EXPERIMENT, PODS
from nni_manager.platform_kit.connections import HealthState
from tests.fakes.kubernetes.kubeconfig import Credentials
from tests.fakes.kubernetes.testing import NAMESPACE, TestCluster, cluster, until

pytestmark = pytest.mark.unit

USER = "ada"


class Connected:
    """A connection of a user with tokens."""

    def __init__(self, world: TestCluster, folder: Path) -> None:
        self._world = world
        self.path = folder / "token"
        self.connection = Cluster("key")

    async def login(self) -> None:
        """Write a new token to the kubeconfig; earlier ones stay valid."""
        token = self._world.control.user(USER, ["system:masters"])["token"]
        self._world.fake.kubeconfig(self.path, Credentials(token=token))

    async def use(self) -> None:
        await self.connection.use(Access(kubeconfig=str(self.path), namespace=NAMESPACE).to_text())

    async def watch(self) -> Informer:
        """The informer of pods, with an open watch."""
        informer = self.connection.informer(PODS)
        await informer.ready()
        opened = self._world.fake.cluster.watches.opened
        await until(lambda: _true(opened.get("pods", 0) > 0))
        return informer

    async def read(self) -> Any:
        return await self.connection.renewing(lambda client: client.call("GET", PODS.path(NAMESPACE)))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TestCluster]:
    async with cluster(tmp_path) as found:
        found.needs_fake("it expires tokens")
        yield found


@pytest.fixture
async def connected(world: TestCluster, tmp_path: Path) -> AsyncIterator[Connected]:
    found = Connected(world, tmp_path)
    await found.login()
    await found.use()
    yield found
    await found.connection.close()


async def test_unchanged_credentials_keep_their_client(connected: Connected) -> None:
    connection = connected.connection
    client = await connection.client()
    await connection.renew(client)
    assert await connection.client() is client
    await connected.login()
    await connection.renew(client)
    assert await connection.client() is not client


async def test_watch_of_closed_client_starts_again(connected: Connected, world: TestCluster) -> None:
    """The second renewal closes the client of the open watch."""
    informer = await connected.watch()
    for _ in range(2):
        await connected.login()
        await connected.connection.renew(await connected.connection.client())
    container = {"name": "c", "image": "x", "command": ["true"]}
    meta = {"name": "late", "labels": {EXPERIMENT: "e"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    await connected.connection.create(PODS, body)
    await until(lambda: _true("late" in informer.objects), 5.0)
    assert informer.trouble is None


async def test_refused_token_is_reported_while_watches_are_open(connected: Connected, world: TestCluster) -> None:
    connection = connected.connection
    informer = await connected.watch()
    world.control.expire_tokens(USER)
    with pytest.raises(Refusal, match="401"):
        await connected.read()
    assert informer.trouble is None, "its watch is still open"
    assert connection.health.state is HealthState.DOWN and "refuses the credentials" in connection.health.sentence
    await connected.login()
    await connected.read()
    assert (connection.refusal, connection.health.state) == (None, HealthState.UP)


async def _true(value: bool) -> bool:
    await asyncio.sleep(0)
    return value
