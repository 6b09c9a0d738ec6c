"""A watch may tell again what was before a list: it brings nothing back that the list lacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nni_manager.kubernetes.api.client import Object, Query
from nni_manager.kubernetes.api.informer import Informer
from nni_manager.kubernetes.api.names import PODS

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


def pod(name: str, version: str) -> Object:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": version}}


class Cluster:
    """An empty list of version 9, and a watch that tells of these pods."""

    def __init__(self, *told: Object) -> None:
        self._told = told

    async def call(self, method: str, path: str, *, query: Query = (), **_: Any) -> Object:
        return {"items": [], "metadata": {"resourceVersion": "9"}}

    @asynccontextmanager
    async def lines(self, path: str, query: Query, limit_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._watch(limit_s)

    async def _watch(self, limit_s: float) -> AsyncIterator[bytes]:
        for one in self._told:
            yield json.dumps({"type": "MODIFIED", "object": one}).encode()
        await asyncio.sleep(limit_s)


@pytest.mark.parametrize(("version", "names"), [("8", set()), ("9", set()), ("10", {"a"})])
async def test_object_missing_in_list_returns_with_newer_version(version: str, names: set[str]) -> None:
    cluster: Any = Cluster(pod("a", version))

    async def client() -> Any:
        return cluster

    informer = Informer(PODS, "default", client, query=(), on_trouble=lambda _: None)
    informer.start()
    await asyncio.sleep(10)
    await informer.stop()
    assert set(informer.objects) == names
