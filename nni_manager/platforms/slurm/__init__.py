"""Jobs of a Slurm cluster. See `README.md` for what users write."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.slurm.config import SlurmConfig

PLATFORM = PlatformDescription(
    name="slurm",
    config=SlurmConfig,
    adapter="nni_manager.platforms.slurm.platform:SlurmPlatform",
    finds_left=True,
    summary="jobs of a Slurm cluster, on its login node or over SSH",
)
