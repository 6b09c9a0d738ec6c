"""Jobs of Kubeflow's operators for TensorFlow and PyTorch.

May import `platform_kit` and `domain`. There is no adapter yet.
"""

from __future__ import annotations

from nni_manager.platform_kit.registry import PlatformDescription
from nni_manager.platforms.kubeflow.config import KubeflowConfig
from nni_manager.platforms.kubeflow.first_format import FIRST_FORMAT

PLATFORM = PlatformDescription(
    name="kubeflow",
    config=KubeflowConfig,
    summary="jobs of Kubeflow's operators for TensorFlow and PyTorch",
    first_format=FIRST_FORMAT,
)
