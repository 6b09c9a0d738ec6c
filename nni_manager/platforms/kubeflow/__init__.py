"""Jobs of Kubeflow's operators for TensorFlow and PyTorch."""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.kubeflow.config import FIRST_FORMAT, KubeflowConfig

PLATFORM = PlatformDescription(
    name="kubeflow",
    config=KubeflowConfig,
    adapter="nni_manager.platforms.kubeflow.platform:KubeflowPlatform",
    summary="jobs of Kubeflow's operators for TensorFlow and PyTorch",
    extra="kubernetes",
    finds_left=True,
    formats={"first": FIRST_FORMAT},
)
