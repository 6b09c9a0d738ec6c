"""An account of a fake OpenPAI cluster, and experiments of a daemon there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.fakes.process import FakeProcess
from tests.live_daemon import Daemon

TRIAL = """\
import sys
import nni
x = nni.get_next_parameter()["x"]
nni.report_intermediate_result(x / 2)
nni.report_final_result(x)
try:
    import nni_manager
except ImportError:
    print("clean")
"""


class Cluster:
    """An account, and the storage that both sides mount."""

    def __init__(self, fake: FakeProcess, folder: Path) -> None:
        self.fake = fake
        self.nfs = folder / "nfs"
        self.nfs.mkdir()
        self.in_containers = folder / "in-containers"
        self.code = folder / "code"
        self.code.mkdir()
        (self.code / "trial.py").write_text(TRIAL)
        self.set_tokens("reset", ["t0ken"])

    def set_tokens(self, verb: str, tokens: list[str]) -> None:
        self.fake.control(verb, users={"alice": {"tokens": tokens}}, storages={"team-nfs": str(self.nfs)})

    def config(self, trials: int, **changes: Any) -> dict[str, Any]:
        return {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": "python3 trial.py",
            "trialCodeDirectory": str(self.code),
            "trialGpuNumber": 0,
            "trialConcurrency": 3,
            "maxTrialNumber": trials,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "nniManagerIp": "127.0.0.1",
            "trainingService": {
                "platform": "openpai",
                "host": self.fake.address,
                "username": "alice",
                "token": "${PAI_TOKEN}",
                "dockerImage": "example/image",
                "trialCpuNumber": 1,
                "trialMemorySize": "1GB",
                "storageConfigName": "team-nfs",
                "localStorageMountPoint": str(self.nfs),
                "containerStorageMountPoint": str(self.in_containers),
            },
            **changes,
        }

    def create(self, daemon: Daemon, trials: int, **changes: Any) -> str:
        return daemon.create(self.config(trials, **changes), self.code, {"PAI_TOKEN": "t0ken"})

    @property
    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.fake.control("jobs")
        return found

    def shown_config(self, name: str) -> str:
        """OpenPAI's config of a submitted job."""
        address = f"{self.fake.address}/rest-server/api/v2/jobs/alice~{name}/config"
        return httpx.get(address, headers={"Authorization": "Bearer t0ken"}).raise_for_status().text


def assert_every_trial_has_its_own_result(daemon: Daemon, id: str, count: int) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert [one["status"] for one in trials] == ["SUCCEEDED"] * count
    assert all(one["finalValue"] == one["parameters"]["x"] and one["intermediates"] == 1 for one in trials)
    return trials
