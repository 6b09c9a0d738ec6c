"""`adl` keeps the platform contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.kubernetes.fields import AnyStorage
from nni_manager.platforms.adl import states
from nni_manager.platforms.adl.config import AdlConfig
from nni_manager.platforms.adl.platform import AdlPlatform
from tests.platforms.kubernetes_contract import KubernetesContract
from tests.platforms.kubernetes_world import KubernetesWorld, Operated

pytestmark = pytest.mark.contract

_POD = {"spec": {"containers": [{"name": "main", "image": "x", "command": ["sleep", "1000"]}]}}


class AdlOnStorage(AdlConfig):
    """With a volume, by which the test leads the job's command."""

    storage: AnyStorage | None = None


class TestAdaptDLJob(KubernetesContract):
    def make_world(self, directory: Path) -> KubernetesWorld:
        settings = {
            "platform": "adl",
            "dockerImage": "example/trial:1",
            "trialCpuNumber": 1,
            "trialMemorySize": "64Mi",
        }
        return KubernetesWorld(
            directory,
            Operated(
                adapter=AdlPlatform,
                config=AdlOnStorage,
                resource="adaptdljobs.adaptdl.petuum.com",
                settings=settings,
                native_states=tuple(states.PHASES),
                state_of=lambda phase: states.report({"status": {"phase": phase}}).state,
                foreign={"template": _POD},
            ),
        )
