"""A real daemon, with azure-identity, on the stand-in for Azure ML: lost answers, SIGKILL, and storage alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import sandbox
from tests.fakes.aml.server import serving
from tests.fakes.aml.workspace import Workspace
from tests.fakes.sandbox import Mount
from tests.live_daemon import Daemon, running_daemon
from tests.platforms.aml.aml_world import RESOURCE
from tests.storage_places import folder_of
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
TOKEN = "entra-t0ken"
#: What shells and templates might take for their own.
ODD = """\
printf '%s|' "it's" '$HOME' '`id`' '${{inputs.x}}' '"' > "$NNI_OUTPUT_DIR/odd"
python3 trial.py
"""
TRIAL = """\
import json, os

with open(os.path.join(os.environ["NNI_SYS_DIR"], "parameter.cfg")) as file:
    x = json.load(file)["parameters"]["x"]
with open(os.environ["NNI_OUTBOX"], "a") as file:
    file.write(json.dumps({"type": "final", "value": x}) + "\\n")
"""


@pytest.fixture
def tokens() -> list[str]:
    """Valid tokens; the first is handed out."""
    return [TOKEN]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: list[str]) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path / "workspace", RESOURCE)
    with serving(workspace, tokens):
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{workspace.address}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "of the machine")
        yield workspace
        workspace.destroy_all()


@pytest.fixture
def daemon(tmp_path: Path, workspace: Workspace) -> Iterator[Daemon]:
    with running_daemon(tmp_path, *LISTENING) as daemon:
        yield daemon


def create(
    daemon: Daemon,
    workspace: Workspace,
    folder: Path,
    trials: int,
    command: str = ODD,
    shared: dict[str, str] | None = None,
    **fields: Any,
) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "trial.py").write_text(TRIAL)
    section = {
        "platform": "aml",
        "subscriptionId": "s1",
        "resourceGroup": "g1",
        "workspaceName": "w1",
        "computeTarget": "gpu-cluster",
        "dockerImage": "example/trial:1.0",
        "endpoint": workspace.address,
        "storageEndpoint": workspace.address,
        "nniManagerIp": "127.0.0.1",
        **fields,
    }
    config = {
        **({} if shared is None else {"sharedStorage": shared}),
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 3,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": section,
    }
    return daemon.create(config, folder)


def check(daemon: Daemon, workspace: Workspace, id: str, trials: int) -> None:
    """As many jobs as trials, and every trial with its own result."""
    found = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert set(workspace.jobs) == {f"nni_exp_{id}_trial_{trial['id']}" for trial in found}
    assert [trial["status"] for trial in found] == ["SUCCEEDED"] * trials
    for trial in found:
        folder = workspace.blobs.folder / "nni-experiments" / id / trial["id"]
        assert trial["finalValue"] == json.loads((folder / "parameter.cfg").read_text())["parameters"]["x"]
        until((folder / "odd").exists)  # the runner tells an end before the compute has uploaded all files
        assert (folder / "odd").read_text() == "it's|$HOME|`id`|${{inputs.x}}|\"|"
        assert trial["link"].startswith("https://ml.azure.com/runs/")
    assert TOKEN not in daemon.log() + (daemon.data / id / "log" / "nnimanager.log").read_text()


def test_lost_answers_and_a_killed_daemon_cost_nothing(daemon: Daemon, workspace: Workspace, tmp_path: Path) -> None:
    workspace.faults.lost_puts = 4
    id = create(daemon, workspace, tmp_path / "code", 6)
    until(lambda: len(workspace.jobs) >= 2)
    daemon.kill()
    daemon.start(*LISTENING)
    daemon.wait(id, "DONE", timeout_s=90)
    check(daemon, workspace, id, 6)


def test_no_trial_is_lost_when_tokens_expire(
    daemon: Daemon, workspace: Workspace, tmp_path: Path, tokens: list[str]
) -> None:
    """Once for another that is at hand, and once for none, until a person has logged in again."""
    gate = 'while [ ! -e "$NNI_OUTPUT_DIR/gate" ]; do sleep 0.1; done'
    id = create(daemon, workspace, tmp_path / "code", 3, f"{gate}\n{ODD}")
    daemon.wait_for(id, lambda state: state["counts"].get("RUNNING") == 3)
    tokens[:] = ["another"]
    calls = len(workspace.calls)
    until(lambda: len(workspace.calls) >= calls + 2)
    assert daemon.status(id)["hold"] is None
    tokens.clear()
    for trial in daemon.call("GET", f"/experiments/{id}/trials")["trials"]:
        (workspace.blobs.folder / "nni-experiments" / id / trial["id"] / "gate").touch()
    daemon.wait_for(id, lambda state: state["hold"])
    tokens.append("third")
    daemon.wait(id, "DONE", timeout_s=90)
    check(daemon, workspace, id, 3)


def test_results_come_through_the_storage_alone(
    daemon: Daemon, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.IMAGE, sandbox.SOON_READ)
    id = create(daemon, workspace, tmp_path / "code", 2, nniManagerIp="127.0.0.2")
    daemon.wait(id, "DONE", timeout_s=100)
    check(daemon, workspace, id, 2)
    assert daemon.rows(id, "SELECT DISTINCT channel FROM attempts") == [("pull",)]


def test_two_experiments_with_the_same_code_at_once(daemon: Daemon, workspace: Workspace, tmp_path: Path) -> None:
    """Both upload it, each to an address of its own; the second finds the asset with another path."""
    workspace.meetings["codes"] = threading.Barrier(2, timeout=10)
    ids = [create(daemon, workspace, tmp_path / name, 2) for name in ("one", "other")]
    for id in ids:
        daemon.wait(id, "DONE", timeout_s=90)
    for id in ids:
        found = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
        assert [trial["status"] for trial in found] == ["SUCCEEDED"] * 2


def test_results_are_read_from_storage_while_the_trial_runs(
    daemon: Daemon, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is held open is not in storage: what is reported stands in files that were closed."""
    monkeypatch.setenv(sandbox.IMAGE, sandbox.SOON_READ)
    (tmp_path / "code").mkdir()
    reporting = "import nni, os, time\nnni.report_intermediate_result(0.5)\n"
    waiting = 'while not os.path.exists(os.environ["NNI_OUTPUT_DIR"] + "/gate"): time.sleep(0.1)\n'
    (tmp_path / "code" / "slow.py").write_text(f"{reporting}{waiting}nni.report_final_result(1)\n")
    id = create(daemon, workspace, tmp_path / "code", 1, "python3 slow.py", nniManagerIp="127.0.0.2")
    until(lambda: daemon.rows(id, "SELECT 1 FROM metrics") == [(1,)])
    (trial,) = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert trial["status"] == "RUNNING"
    (workspace.blobs.folder / "nni-experiments" / id / trial["id"] / "gate").touch()
    daemon.wait(id, "DONE", timeout_s=90)


def test_trials_work_on_shared_storage(daemon: Daemon, workspace: Workspace, tmp_path: Path) -> None:
    """Their files outlive the experiment; a container with another mount fails with a sentence."""
    (tmp_path / "storage").mkdir()
    workspace.nodes.mounted.append(Mount(tmp_path / "storage", Path("/mnt/team")))
    storage = {
        "storageType": "NFS",
        "nfsServer": "files.example.test",
        "exportedDirectory": "/data",
        "localMountPoint": str(tmp_path / "storage"),
        "remoteMountPoint": "/mnt/team",
        "localMounted": "usermount",
    }
    id = create(
        daemon, workspace, tmp_path / "code", 2, f'echo model > "$NNI_OUTPUT_DIR/model"; pwd > at; {ODD}', storage
    )
    daemon.wait(id, "DONE", timeout_s=90)
    trials = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert [trial["status"] for trial in trials] == ["SUCCEEDED"] * 2
    for trial in trials:
        root = tmp_path / "storage" / "nni"
        folder = folder_of(root, id) / "trials" / trial["id"]
        assert (folder / "nnioutput" / "model").read_text() == "model\n"
        assert (folder / "code" / "at").read_text() == f"/mnt/team/nni/{folder.relative_to(root)}/code\n"
    other = create(daemon, workspace, tmp_path / "code", 1, ODD, {**storage, "remoteMountPoint": "/mnt/elsewhere"})
    daemon.wait(other, "DONE", timeout_s=90)
    (trial,) = daemon.call("GET", f"/experiments/{other}/trials")["trials"]
    assert trial["status"] == "FAILED"
    words = "sharedStorage.remoteMountPoint: /mnt/elsewhere is not mounted, and "
    assert trial["message"].startswith(words) and not trial["lastWords"], trial
    assert trial["message"].endswith("store files in the workspace's own container"), "it is whole"
    with pytest.raises(AssertionError, match=r"sharedStorage\.remoteMountPoint"):
        create(daemon, workspace, tmp_path / "code", 1, ODD, {**storage, "remoteMountPoint": "mnt"})
