"""Plain Jobs of Kubernetes, optionally queued by Kueue."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.kubernetes.config import KubernetesConfig

PLATFORM = PlatformDescription(
    name="kubernetes",
    config=KubernetesConfig,
    adapter="nni_manager.platforms.kubernetes.platform:BatchJobPlatform",
    summary="plain Jobs of Kubernetes, optionally queued by Kueue",
    extra="kubernetes",
    finds_left=True,
)
