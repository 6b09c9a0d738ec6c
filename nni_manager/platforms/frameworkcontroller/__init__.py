"""Frameworks of FrameworkController, on Kubernetes. May import `platform_kit` and `domain`. There is no adapter yet."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.frameworkcontroller.config import FrameworkcontrollerConfig
from nni_manager.platforms.frameworkcontroller.first_format import FIRST_FORMAT

PLATFORM = PlatformDescription(
    name="frameworkcontroller",
    config=FrameworkcontrollerConfig,
    summary="frameworks of FrameworkController, on Kubernetes",
    first_format=FIRST_FORMAT,
)
