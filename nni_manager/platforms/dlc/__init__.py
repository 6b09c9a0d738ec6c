"""Jobs of Alibaba's PAI-DLC."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.dlc.config import DlcConfig

PLATFORM = PlatformDescription(
    name="dlc",
    config=DlcConfig,
    adapter="nni_manager.platforms.dlc.platform:DlcPlatform",
    summary="jobs of Alibaba's PAI-DLC",
    extra="dlc",
)
