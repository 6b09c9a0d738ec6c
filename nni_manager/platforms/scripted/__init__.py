"""The platform `scripted`: simulates a cluster from a script.

See `README.md` for what users write.
"""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.scripted.config import ScriptedConfig

PLATFORM = PlatformDescription(
    name="scripted",
    config=ScriptedConfig,
    adapter="nni_manager.platforms.scripted.platform:ScriptedPlatform",
    summary="simulates a cluster, faults included, from a script in its config; for trying settings without one",
)
