"""Runs of Azure Machine Learning."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.aml.config import FIRST_FORMAT, AmlConfig

PLATFORM = PlatformDescription(
    name="aml",
    config=AmlConfig,
    adapter="nni_manager.platforms.aml.platform:AmlPlatform",
    summary="runs of Azure Machine Learning",
    extra="azure",
    formats={"first": FIRST_FORMAT},
)
