"""`scripted`, with real runners that are read, keeps the platform contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_world import ScriptedWorld

from nni_manager.platform_kit.testing import PlatformContract

pytestmark = pytest.mark.contract


class TestScripted(PlatformContract):
    def make_world(self, directory: Path) -> ScriptedWorld:
        return ScriptedWorld(directory)
