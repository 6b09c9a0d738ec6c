"""A real daemon with `sharedStorage` that the user mounted, on this machine and on loopback machines."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon, end_all, picked
from tests.platforms.remote.ssh_machines import RealMachine
from tests.storage_places import folder_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120), pytest.mark.group("shared_storage")]

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
#: Needs its code, writes next to it and into its output folder, and prints. Quotes and variables must be unchanged.
_COMMAND = (
    "test -f note.txt || exit 3; pwd > where.txt; echo model > \"$NNI_OUTPUT_DIR/model.bin\"; echo 'it'\"'\"'s done'; "
    f"echo careful >&2; {_REPORT}"
)
ROOT = Path(__file__).parents[2]
_KEY = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """The storage as mounted on this machine."""
    folder = tmp_path / "storage"
    folder.mkdir()
    return folder


@pytest.fixture
def machine(tmp_path: Path, storage: Path) -> Iterator[RealMachine]:
    """A machine with the same storage, mounted below its home folder."""
    machine = RealMachine(tmp_path / "machine")
    (machine.home / "mnt").mkdir()
    (machine.home / "mnt" / "nni").symlink_to(storage)
    asyncio.run(machine.start())
    yield machine
    asyncio.run(machine.stop())
    end_all(str(machine.home))


def test_trials_on_this_machine_work_on_the_storage(shared: Daemon, code: Path, storage: Path) -> None:
    (code / "note.txt").touch()
    id_ = shared.create(_config(storage, {"platform": "local"}, trials=3), code)
    shared.wait(id_, "DONE", timeout_s=30)
    assert _results(shared, id_) == [(number, "SUCCEEDED", str(number)) for number in range(3)]
    assert not (code / "where.txt").exists(), "each trial has a copy of the code"
    assert len(list(folder_of(storage / "nni", id_).glob("code-*.tar.gz"))) == 1
    shared.call("POST", f"/experiments/{id_}/stop")
    _see_outputs(shared, id_, storage)
    assert not list(folder_of(storage / "nni", id_).glob("code-*")) and not list(
        folder_of(storage / "nni", id_).glob(".nni*")
    )
    shared.call("DELETE", f"/experiments/{id_}")
    assert len(list(folder_of(storage / "nni", id_).glob("trials/*/nnioutput/model.bin"))) == 3, "they are their user's"


def test_hybrid_experiment_has_one_storage(shared: Daemon, code: Path, storage: Path, machine: RealMachine) -> None:
    (code / "note.txt").touch()
    both = code.parent / "both"  # trials here wait until one is there
    here = {"platform": "local", "trialConcurrency": 1, "trialCommand": f"{_wait(both)}; {_COMMAND}"}
    there = {"platform": "remote", "trialCommand": f"touch {both}; {_COMMAND}", "machineList": [machine.entry()]}
    id_ = shared.create(_config(storage, [here, there], trials=6), code)
    shared.wait(id_, "DONE", timeout_s=60)
    assert _results(shared, id_) == [(number, "SUCCEEDED", str(number)) for number in range(6)]
    assert set(picked(shared.attempts(id_), "service")) == {("local",), ("remote",)}
    assert not list(machine.home.rglob("*.tar.gz")), "the code goes by the storage"
    shared.call("POST", f"/experiments/{id_}/stop")
    _see_outputs(shared, id_, storage)
    folders = [path.name for path in (folder_of(storage / "nni", id_) / "trials").iterdir()]
    assert len([name for name in folders if not name.endswith("-checkpoint")]) == len(folders) / 2 == 6


def test_experiment_finds_its_folder_again(daemon: Daemon, code: Path, storage: Path, tmp_path: Path) -> None:
    """The folder has a random name. It is found after a daemon kill, a resume and a move of the data directory."""
    (code / "note.txt").touch()
    command = f"while [ ! -e {tmp_path}/go-$NNI_TRIAL_SEQ_ID ]; do sleep 0.05; done; {_COMMAND}"
    (tmp_path / "go-0").touch()
    id_ = daemon.create(_config(storage, {"platform": "local", "trialConcurrency": 1}, trials=3, command=command), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 1)
    folder = folder_of(storage / "nni", id_)
    daemon.kill()
    (tmp_path / "go-1").touch()
    daemon.start()
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED") == 2)
    daemon.call("POST", f"/experiments/{id_}/stop")
    daemon.terminate()
    daemon.data = daemon.data.rename(tmp_path / "moved")
    for number in range(2, 5):
        (tmp_path / f"go-{number}").touch()
    daemon.start()
    daemon.call("POST", f"/experiments/{id_}/resume")
    daemon.wait(id_, "DONE", timeout_s=30)
    assert folder_of(storage / "nni", id_) == folder
    succeeded = [id for id, status in picked(daemon.trials(id_), "id", "status") if status == "SUCCEEDED"]
    assert sorted(path.parts[-3].partition("-")[0] for path in folder.glob("trials/*/nnioutput/model.bin")) == sorted(
        succeeded
    )
    daemon.call("POST", f"/experiments/{id_}/stop")


def test_machine_with_another_mount_refuses_the_experiment(
    shared: Daemon, code: Path, storage: Path, machine: RealMachine
) -> None:
    (machine.home / "other").mkdir()
    (machine.home / "other" / "foreign.txt").touch()
    section = {"platform": "remote", "machineList": [machine.entry()]}
    config = _config(storage, section, remoteMountPoint="other")
    text = _refused(shared, code, config)
    assert "sharedStorage.remoteMountPoint" in text and f"{machine.home}/other" in text and str(storage) in text, text
    assert not list(storage.iterdir()), "looking leaves nothing"


def test_missing_folder_refuses_the_experiment(shared: Daemon, code: Path, tmp_path: Path) -> None:
    text = _refused(shared, code, _config(tmp_path / "nowhere", {"platform": "local"}))
    assert "sharedStorage.localMountPoint" in text and "sudo mount -t nfs files.example.test:/data" in text, text


def test_account_key_appears_nowhere(shared: Daemon, code: Path, storage: Path) -> None:
    (code / "note.txt").touch()
    config = _config(storage, {"platform": "local"})
    kept = {name: config["sharedStorage"][name] for name in ("localMountPoint", "remoteMountPoint", "localMounted")}
    config["sharedStorage"] = {
        **kept,
        "storageType": "AzureBlob",
        "storageAccountName": "shop",
        "containerName": "models",
        "storageAccountKey": _KEY,
    }
    id_ = shared.create(config, code)
    shared.wait(id_, "DONE", timeout_s=30)
    told = json.dumps(shared.call("GET", f"/experiments/{id_}"))
    assert "shop" in told and _KEY not in told
    shared.call("POST", f"/experiments/{id_}/stop")
    assert _KEY not in shared.log()
    assert not [path for path in storage.rglob("*") if path.is_file() and _KEY.encode() in path.read_bytes()]


def test_unmounted_storage_is_named(shared: Daemon, code: Path, storage: Path, machine: RealMachine) -> None:
    """Unmounted on the machine: a trial that has not started is retried when the storage is back."""
    (code / "note.txt").touch()
    hold, begun = code.parent / "hold", code.parent / "begun"
    begun.mkdir()
    command = f"touch {begun}/$NNI_TRIAL_SEQ_ID; {_wait(hold)}; {_COMMAND}"
    section = {"platform": "remote", "machineList": [machine.entry()]}
    id_ = shared.create(_config(storage, section, trials=3, command=command), code)
    shared.wait_for(id_, lambda _: len(list(begun.iterdir())) == 2)
    point = machine.home / "mnt" / "nni"
    point.unlink()
    point.mkdir()
    hold.touch()
    shared.wait_for(id_, lambda _: _lost_storage(shared, id_), timeout_s=20)
    message = _lost_storage(shared, id_)[0]
    assert "sharedStorage.remoteMountPoint" in message and str(storage) in message, message
    point.rmdir()
    point.symlink_to(storage)
    shared.wait(id_, "DONE", timeout_s=40)
    assert _results(shared, id_) == [(number, "SUCCEEDED", str(number)) for number in range(3)]
    shared.call("POST", f"/experiments/{id_}/stop")


def _lost_storage(daemon: Daemon, id_: str) -> list[str]:
    """Messages of attempts that ended because it was missing."""
    return [attempt["message"] for attempt in daemon.attempts(id_) if attempt["reason"] == "STORAGE"]


def _wait(path: Path) -> str:
    return f"while [ ! -e {path} ]; do sleep 0.05; done"


def _see_outputs(daemon: Daemon, id_: str, storage: Path) -> None:
    for (trial,) in picked(daemon.trials(id_), "id"):
        folder = folder_of(storage / "nni", id_) / "trials" / trial
        assert (folder / "nnioutput" / "model.bin").read_text() == "model\n"
        assert (folder / "stdout").read_text() == "it's done\n" and (folder / "stderr").read_text() == "careful\n"
        where = (folder / "code" / "where.txt").read_text()
        assert where.endswith(f"/nni/{folder.relative_to(storage / 'nni')}/code\n")
        assert json.loads((folder / "parameter.cfg").read_text())["parameters"].keys() == {"x"}


def _results(daemon: Daemon, id_: str) -> list[tuple[Any, ...]]:
    return picked(daemon.trials(id_), "sequenceId", "status", "finalResult")


def _refused(daemon: Daemon, code: Path, config: dict[str, Any]) -> str:
    body = {"config": json.dumps(config), "directory": str(code), "environment": dict(os.environ)}
    with daemon.client() as client:
        answer = client.post("/api/v1/experiments", json=body)
    assert answer.status_code == 400, answer.text
    return answer.text


def _config(
    storage: Path,
    section: Any,
    *,
    trials: int = 1,
    command: str = _COMMAND,
    remoteMountPoint: str = "mnt/nni",
    **fields: Any,
) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": section,
        **fields,
        "sharedStorage": {
            "storageType": "NFS",
            "localMountPoint": str(storage),
            "remoteMountPoint": remoteMountPoint,
            "localMounted": "usermount",
            "nfsServer": "files.example.test",
            "exportedDirectory": "/data",
        },
    }


@pytest.mark.machines
@pytest.mark.parametrize("kind", ["NFS", "AzureBlob"])
def test_manager_mounts_the_storage(tmp_path: Path, kind: str) -> None:
    command = ["unshare", "--mount", sys.executable, "-m", "tests.acceptance.mounted_storage_run", str(tmp_path), kind]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert (ended.returncode, ended.stdout.strip().endswith("done")) == (0, True), ended.stdout + ended.stderr
