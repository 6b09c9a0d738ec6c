"""The platform `scripted`: a cluster that acts out a script.

See `README.md` for what users write.
"""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.scripted.config import ScriptedConfig

PLATFORM = PlatformDescription(
    name="scripted",
    config=ScriptedConfig,
    adapter="nni_manager.platforms.scripted.platform:ScriptedPlatform",
    summary="acts out a script from its config, faults included: a way to try settings without a cluster",
)
