"""`kubernetes` keeps the platform contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.job import JobState
from nni_manager.platforms.kubernetes import states
from nni_manager.platforms.kubernetes.config import KubernetesConfig
from nni_manager.platforms.kubernetes.platform import BatchJobPlatform
from tests.platforms.kubernetes_contract import KubernetesContract
from tests.platforms.kubernetes_world import KubernetesWorld, Operated

pytestmark = pytest.mark.contract

SETTINGS: dict[str, Any] = {
    "platform": "kubernetes",
    "dockerImage": "example/trial:1",
    "trialCpuNumber": "1",
    "trialMemorySize": "64Mi",
}
_POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "command": ["sleep", "1000"]}]}


def state_of(condition: str) -> JobState:
    job = {"metadata": {"name": "j"}, "status": {"conditions": [{"type": condition, "status": "True"}]}}
    return states.report(job).state


OPERATED = Operated(
    adapter=BatchJobPlatform,
    config=KubernetesConfig,
    resource="jobs.batch",
    settings=SETTINGS,
    native_states=tuple(states.STATES),
    state_of=state_of,
    foreign={"template": {"spec": _POD}},
)


class TestBatchJob(KubernetesContract):
    def make_world(self, directory: Path) -> KubernetesWorld:
        return KubernetesWorld(directory, OPERATED)
