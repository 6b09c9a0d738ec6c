"""The platform contract against a real service that a config names. `make live` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract
from tests.platforms.live.live_world import LiveWorld, Service

pytestmark = [pytest.mark.contract, pytest.mark.timeout(1800)]


class TestLive(PlatformContract):
    @pytest.fixture(autouse=True)
    def _service(self, live_service: Service) -> None:
        self.service = live_service

    def make_world(self, directory: Path) -> LiveWorld:
        return LiveWorld(directory, self.service)
