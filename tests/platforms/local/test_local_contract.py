"""`local` keeps the platform contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_world import LocalWorld

from nni_manager.platform_kit.testing import PlatformContract

pytestmark = pytest.mark.contract


class TestLocal(PlatformContract):
    def make_world(self, directory: Path) -> LocalWorld:
        return LocalWorld(directory)
