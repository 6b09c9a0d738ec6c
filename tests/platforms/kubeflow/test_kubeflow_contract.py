"""`kubeflow`, with both operators, keeps the platform contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.domain.job import JobState
from nni_manager.platforms.kubeflow import states
from nni_manager.platforms.kubeflow.config import KubeflowConfig
from nni_manager.platforms.kubeflow.platform import KubeflowPlatform
from tests.platforms.kubernetes_contract import KubernetesContract
from tests.platforms.kubernetes_world import KubernetesWorld, Operated

pytestmark = pytest.mark.contract

_ROLE = {"replicas": 1, "dockerImage": "example/trial:1", "cpuNumber": 1, "memorySize": 64, "gpuNumber": 0}


def state_of(condition: str) -> JobState:
    return states.report({"status": {"conditions": [{"type": condition, "status": "True"}]}}).state


def operated(operator: str, role: str, plural: str) -> Operated:
    container = {"name": "tensorflow" if role == "worker" else "pytorch", "image": "x", "command": ["sleep", "1000"]}
    template = {"spec": {"containers": [container]}}
    field, name = ("tfReplicaSpecs", "Worker") if role == "worker" else ("pytorchReplicaSpecs", "Master")
    return Operated(
        adapter=KubeflowPlatform,
        config=KubeflowConfig,
        resource=f"{plural}.kubeflow.org",
        native_states=tuple(states.STATES),
        settings={"platform": "kubeflow", "operator": operator, "apiVersion": "v1", role: _ROLE},
        state_of=state_of,
        foreign={field: {name: {"replicas": 1, "restartPolicy": "Never", "template": template}}},
    )


class TestTFJob(KubernetesContract):
    def make_world(self, directory: Path) -> KubernetesWorld:
        return KubernetesWorld(directory, operated("tf-operator", "worker", "tfjobs"))


class TestPyTorchJob(KubernetesContract):
    def make_world(self, directory: Path) -> KubernetesWorld:
        return KubernetesWorld(directory, operated("pytorch-operator", "master", "pytorchjobs"))
