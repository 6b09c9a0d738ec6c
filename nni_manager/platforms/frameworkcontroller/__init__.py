"""Frameworks of FrameworkController, on Kubernetes."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.frameworkcontroller.config import FIRST_FORMAT, FrameworkcontrollerConfig

PLATFORM = PlatformDescription(
    name="frameworkcontroller",
    config=FrameworkcontrollerConfig,
    adapter="nni_manager.platforms.frameworkcontroller.platform:FrameworkcontrollerPlatform",
    summary="frameworks of FrameworkController, on Kubernetes",
    extra="kubernetes",
    finds_left=True,
    formats={"first": FIRST_FORMAT},
)
