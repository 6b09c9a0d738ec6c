"""Jobs of AdaptDL, on Kubernetes."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.adl.config import FIRST_FORMAT, AdlConfig

PLATFORM = PlatformDescription(
    name="adl",
    config=AdlConfig,
    adapter="nni_manager.platforms.adl.platform:AdlPlatform",
    summary="jobs of AdaptDL, on Kubernetes",
    extra="kubernetes",
    finds_left=True,
    formats={"first": FIRST_FORMAT},
)
