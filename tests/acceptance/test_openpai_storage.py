"""A daemon with jobs on a fake OpenPAI cluster that mount `sharedStorage` themselves, or report why they cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.openpai_account import Cluster, assert_every_trial_has_its_own_result
from tests.fakes import sandbox
from tests.fakes.process import running
from tests.live_daemon import Daemon
from tests.storage_places import folder_of
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

KEY = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="
POINT = "/mnt/nni"
#: Writes a model, and prints its folder and the visible part of the account key.
COMMAND = 'echo model > "$NNI_OUTPUT_DIR/model"; pwd > at; env > seen; python3 trial.py'


class Shared(Cluster):
    """A cluster whose network has an NFS export and a blob container, backed by the same local folder."""

    def set_tokens(self, verb: str, tokens: list[str]) -> None:
        self.export = self.nfs.with_name("export")
        self.export.mkdir(exist_ok=True)
        self.fake.control(
            verb,
            users={"alice": {"tokens": tokens}},
            storages={"team-nfs": str(self.nfs)},
            exports={"files.example.test:/data": str(self.export)},
            blobs={"shop/models": {"folder": str(self.export), "key": KEY}},
        )

    def storage(self, kind: str = "NFS", **changes: Any) -> dict[str, Any]:
        nfs = {"nfsServer": "files.example.test", "exportedDirectory": "/data"}
        blob = {"storageAccountName": "shop", "storageAccountKey": KEY, "containerName": "models"}
        mounted = {"localMountPoint": str(self.export), "remoteMountPoint": POINT, "localMounted": "usermount"}
        return {"storageType": kind, **mounted, **(nfs if kind == "NFS" else blob), **changes}

    def begun(self, daemon: Daemon, trials: int, kind: str = "NFS", command: str = COMMAND, **changes: Any) -> str:
        storage = self.storage(kind, **changes)
        return self.create(daemon, trials, trialCommand=command, sharedStorage=storage)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Shared]:
    folder = tmp_path / "openpai"
    folder.mkdir()
    with running("openpai", folder / "cluster") as fake:
        yield Shared(fake, folder)


@pytest.mark.parametrize("kind", ["NFS", "AzureBlob"])
def test_trials_use_the_storage_across_daemon_kills(listening: Daemon, cluster: Shared, kind: str) -> None:
    command = f'echo on > "$NNI_CHECKPOINT_DIR/state"; while [ ! -e {POINT}/go ]; do sleep 0.1; done; {COMMAND}'
    id = cluster.begun(listening, 5, kind, command)
    until(lambda: len(list(cluster.export.glob("nni/*/*/trials/*-checkpoint/state"))) == 3, within_s=60)
    listening.kill()
    (cluster.export / "go").touch()
    listening.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    listening.wait(id, "DONE", timeout_s=120)
    trials = assert_every_trial_has_its_own_result(listening, id, 5)
    assert len(cluster.jobs) == 5
    listening.call("POST", f"/experiments/{id}/stop")
    root = folder_of(cluster.export / "nni", id)
    for trial in trials:
        folder = root / "trials" / trial["id"]
        assert (folder / "nnioutput" / "model").read_text() == "model\n"
        assert (folder / "stdout").read_text() == "clean\n"
        assert (folder / "code" / "at").read_text() == f"{POINT}/nni/{folder.relative_to(root.parents[1])}/code\n"
    assert not list(root.glob("code-*")), "what all trials use is gone with the experiment"
    _see_no_key(listening, cluster, id)


def _see_no_key(daemon: Daemon, cluster: Shared, id: str) -> None:
    job = cluster.jobs[0]
    commands = json.dumps(job["config"]["taskRoles"])
    shown = cluster.shown_config(job["name"])
    assert KEY not in daemon.log() + json.dumps(daemon.call("GET", f"/experiments/{id}")) + commands + shown
    files = [path for folder in (cluster.nfs, cluster.export) for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20 and not [path for path in files if KEY.encode() in path.read_bytes()]


def test_results_come_during_the_run_if_runners_cannot_connect(
    listening: Daemon, cluster: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.IMAGE, sandbox.SOON_READ)
    cluster.fake.stop()
    cluster.fake.start()
    (cluster.code / "trial.py").write_text(
        "import os, time, nni\nnni.report_intermediate_result(0.5)\n"
        f"while not os.path.exists('{POINT}/go'): time.sleep(0.1)\nnni.report_final_result(1)\n"
    )
    storage = cluster.storage()
    id = cluster.create(listening, 1, nniManagerIp="127.0.0.2", sharedStorage=storage)
    until(lambda: listening.rows(id, "SELECT 1 FROM metrics") == [(1,)], within_s=60)
    (trial,) = listening.trials(id)
    assert trial["status"] == "RUNNING"
    (cluster.export / "go").touch()
    listening.wait(id, "DONE")


def test_unmountable_storage_fails_trials_and_causes_a_hold(listening: Daemon, cluster: Shared) -> None:
    id = cluster.begun(listening, 20, nfsServer="elsewhere")
    hold = listening.wait_for(id, lambda state: state["hold"], timeout_s=100)["hold"]
    words = "sharedStorage.remoteMountPoint: elsewhere:/data could not be mounted at /mnt/nni: "
    assert hold["code"] == "SAME_FAILURE" and words in hold["sentence"], hold
    ended = [trial for trial in listening.trials(id) if trial["status"] == "FAILED"]
    assert 5 <= len(ended) <= 8
    assert all(trial["reason"] == "USER_CODE" and trial["message"].startswith(words) for trial in ended)
    assert not any(trial["lastWords"] for trial in ended), "it is told once"


def test_users_own_job_uses_the_storage(listening: Daemon, cluster: Shared) -> None:
    role = {
        "instances": 1,
        "dockerImage": "image",
        "commands": ["<% $parameters.prelude %>", COMMAND],
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
    }
    job = {
        "protocolVersion": 2,
        "name": "mine",
        "type": "job",
        "prerequisites": [{"type": "dockerimage", "uri": "example/image", "name": "image"}],
        "parameters": {"prelude": "x=$(cat trial.py)"},
        "taskRoles": {"main": role},
    }
    config = cluster.config(1, sharedStorage=cluster.storage())
    del config["trialCommand"]
    config["trainingService"]["openpaiConfig"] = job
    id = listening.create(config, cluster.code, {"PAI_TOKEN": "t0ken"})
    listening.wait(id, "DONE", timeout_s=100)
    (trial,) = assert_every_trial_has_its_own_result(listening, id, 1)
    folder = folder_of(cluster.export / "nni", id) / "trials" / trial["id"]
    assert (folder / "nnioutput" / "model").read_text() == "model\n"
