"""Jobs of an OpenPAI cluster. See `README.md` for what users write."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.openpai.config import FIRST_FORMAT, OpenpaiConfig

PLATFORM = PlatformDescription(
    name="openpai",
    config=OpenpaiConfig,
    adapter="nni_manager.platforms.openpai.platform:OpenpaiPlatform",
    summary="jobs of an OpenPAI cluster; results come over the network or through the team's storage",
    old_names=("pai", "paiYarn"),
    formats={"first": FIRST_FORMAT},
)
