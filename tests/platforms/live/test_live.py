"""The platform contract against a real service: ``pytest tests/platforms/live --live openpai --live-config FILE``."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import Feature, PlatformContract
from tests.platforms.live.live_world import LiveWorld, Service

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1800)]


class TestLive(PlatformContract):
    @pytest.fixture(autouse=True)
    def _service(self, request: pytest.FixtureRequest) -> None:
        option = request.config.getoption
        self.service = Service(
            name=option("live"), config=Path(option("live_config")).resolve(), address=option("live_address"),
            patience_s=option("live_patience"), without=frozenset(map(Feature, option("live_without"))),
        )  # fmt: skip

    def make_world(self, directory: Path) -> LiveWorld:
        return LiveWorld(directory, self.service)
