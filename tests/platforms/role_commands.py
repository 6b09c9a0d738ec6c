"""Configs with roles without a command, so that each job runs its own."""

from __future__ import annotations

from typing import Any, TypeVar

from nni_manager.kubernetes.fields import KubernetesSection
from nni_manager.platform_kit.section_model import PlatformSection

SectionT = TypeVar("SectionT", bound=PlatformSection)


def without_commands(config: SectionT) -> SectionT:
    """The config itself, which is changed: models demand a command of every role."""
    if isinstance(config, KubernetesSection):
        for _, role in config.replicas():
            object.__setattr__(role, "command", "")
    return config


def with_commands(settings: Any) -> Any:
    """A section, or a part of one, with a command in every role that has none."""
    if isinstance(settings, list):
        return [with_commands(one) for one in settings]
    if not isinstance(settings, dict):
        return settings
    whole = {name: with_commands(value) for name, value in settings.items()}
    return {"command": "true", **whole} if "cpuNumber" in whole else whole
