"""Runs trials on a Hive. What the manager knows of it without importing anything heavy."""

from __future__ import annotations

from nni_hive.config import HiveConfig
from nni_manager.platform_kit.registry import PlatformDescription

PLATFORM = PlatformDescription(
    name="hive",
    config=HiveConfig,
    summary="a small batch service, reached over HTTP",
    adapter="nni_hive.platform:HivePlatform",
)
