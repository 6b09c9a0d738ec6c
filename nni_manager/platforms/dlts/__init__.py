"""Jobs of DLWorkspace. May import `platform_kit` and `domain`. There is no adapter yet."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.dlts.config import DltsConfig
from nni_manager.platforms.dlts.first_format import FIRST_FORMAT

PLATFORM = PlatformDescription(
    name="dlts",
    config=DltsConfig,
    summary="jobs of DLWorkspace",
    first_format=FIRST_FORMAT,
)
