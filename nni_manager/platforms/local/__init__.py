"""The platform `local`: this machine. See `README.md` for what users write."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.local.config import FIRST_FORMAT, LocalConfig

PLATFORM = PlatformDescription(
    name="local",
    config=LocalConfig,
    adapter="nni_manager.platforms.local.platform:LocalPlatform",
    summary="processes on this machine; trials outlive the manager",
    formats={"first": FIRST_FORMAT},
)
