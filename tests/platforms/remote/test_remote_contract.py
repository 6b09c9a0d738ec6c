"""`remote` keeps the platform contract, with a server of this process and with OpenSSH's."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import PlatformContract
from tests.platforms.remote.remote_world import RemoteWorld
from tests.platforms.remote.ssh_machines import InProcessMachine, RealMachine

pytestmark = pytest.mark.contract


@pytest.mark.thorough
class TestRemote(PlatformContract):
    def make_world(self, directory: Path) -> RemoteWorld:
        return RemoteWorld(directory, InProcessMachine(directory / "machine"), InProcessMachine(directory / "other"))


class TestRemoteWithSshd(PlatformContract):
    def make_world(self, directory: Path) -> RemoteWorld:
        return RemoteWorld(directory, RealMachine(directory / "machine"), RealMachine(directory / "other"))
