"""Machines reached by SSH."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.remote.config import FIRST_FORMAT, RemoteConfig

PLATFORM = PlatformDescription(
    name="remote",
    config=RemoteConfig,
    adapter="nni_manager.platforms.remote.platform:RemotePlatform",
    summary="machines reached by SSH",
    extra="ssh",
    formats={"first": FIRST_FORMAT},
)
