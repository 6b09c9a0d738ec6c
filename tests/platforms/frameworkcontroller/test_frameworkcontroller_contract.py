"""`frameworkcontroller` keeps the platform contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platforms.frameworkcontroller import states
from nni_manager.platforms.frameworkcontroller.config import FrameworkcontrollerConfig
from nni_manager.platforms.frameworkcontroller.platform import FrameworkcontrollerPlatform
from tests.platforms.kubernetes_contract import KubernetesContract
from tests.platforms.kubernetes_world import KubernetesWorld, Operated

pytestmark = pytest.mark.contract

_ROLE = {
    "name": "worker",
    "taskNumber": 1,
    "dockerImage": "example/trial:1",
    "cpuNumber": 1,
    "memorySize": 64,
    "gpuNumber": 0,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceedTaskCount": 1},
}

_POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "command": ["sleep", "1000"]}]}}
_FOREIGN = {
    "executionType": "Start",
    "taskRoles": [{"name": "worker", "taskNumber": 1, "task": {"pod": _POD}}],
}


class TestFramework(KubernetesContract):
    def make_world(self, directory: Path) -> KubernetesWorld:
        return KubernetesWorld(
            directory,
            Operated(
                adapter=FrameworkcontrollerPlatform,
                config=FrameworkcontrollerConfig,
                resource="frameworks.frameworkcontroller.microsoft.com",
                settings={"platform": "frameworkcontroller", "taskRoles": [_ROLE]},
                native_states=tuple(states.STATES),
                state_of=lambda state: states.report({"status": {"state": state}}).state,
                foreign=_FOREIGN,
            ),
        )
