"""The platform contract in a namespace of a real cluster. `make live` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.platforms.kubernetes_contract import KubernetesContract
from tests.platforms.live.cluster_world import ClusterWorld, Place
from tests.platforms.live.live_world import Service

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1800)]


class TestLive(KubernetesContract):
    @pytest.fixture(autouse=True)
    def _place(self, request: pytest.FixtureRequest, live_service: Service) -> None:
        option = request.config.getoption
        self.service = live_service
        self.place = Place(
            owner=Path(option("live_kubeconfig")), namespace=option("live_namespace"), image=option("live_image")
        )

    def make_world(self, directory: Path) -> ClusterWorld:
        return ClusterWorld(directory, self.service, self.place)
