"""Jobs of DLWorkspace. See `README.md` for what users write."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.dlts.config import FIRST_FORMAT, DltsConfig

PLATFORM = PlatformDescription(
    name="dlts",
    config=DltsConfig,
    adapter="nni_manager.platforms.dlts.platform:DltsPlatform",
    summary="jobs of DLWorkspace, which share a home folder with the manager",
    formats={"first": FIRST_FORMAT},
)
