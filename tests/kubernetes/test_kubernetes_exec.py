"""A command in a pod that is refused as the token was exchanged: credentials are read again, and it is tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from nni_manager.kubernetes.api.client import Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.observing import followed_jobs
from tests.kubernetes.test_kubernetes_lost_posts import pod

pytestmark = pytest.mark.unit


class Renewed(Cluster):
    """A cluster that takes the second token alone."""

    namespace = "default"  # type: ignore[assignment]

    def __init__(self) -> None:
        self.token = "first"
        self.refusal = None

    async def client(self) -> Any:
        return self.token

    async def renew(self, used: Any) -> None:
        assert used == "first"
        self.token = "second"


async def test_a_revoked_token_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def execute(client: Any, *_: Any) -> bytes:
        if client == "first":
            raise Refusal(status=401, reason="Unauthorized", message="")
        return b"done"

    monkeypatch.setattr(followed_jobs, "execute", execute)
    assert await followed_jobs._execute(Renewed(), pod("u"), "read", _nothing()) == b"done"


async def _nothing() -> AsyncIterator[bytes]:
    yield b""
