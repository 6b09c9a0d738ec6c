"""Checkpoints outlive attempts: no step is repeated, however the job is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from nni_manager.kubernetes.api.names import PODS
from tests.acceptance.kubernetes_cluster import EXPORT, SERVER, FakeCluster
from tests.live_daemon import Daemon, picked
from tests.platforms.remote.ssh_machines import RealMachine
from tests.storage_places import folder_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

#: Number of steps of the trial, and the steps after which its job is lost.
UNTIL, TAKEN = 100, (16, 33, 34, 60, 99)
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


class Counting:
    """An experiment of one counting trial."""

    def __init__(self, daemon: Daemon, folder: Path, code: Path, service: dict[str, Any], **fields: Any) -> None:
        self.daemon, self._notes = daemon, folder / "notes"
        python = fields.pop("python", sys.executable)
        waits = ",".join(map(str, TAKEN))
        self.command = f"{python} counting.py {UNTIL} {self._notes} {waits}"
        config = {
            "searchSpace": SPACE,
            "trialCommand": self.command,
            "trialCodeDirectory": ".",
            "trialConcurrency": 1,
            "maxTrialNumber": 1,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": service,
            **fields,
        }
        if "worker" in service:
            service["worker"]["command"] = self.command
        self.id = daemon.create(config, code)

    def notes(self, event: str) -> list[dict[str, Any]]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def pid_at(self, step: int) -> int:
        """Wait for the process that waits after this step."""
        self.daemon.wait_for(self.id, lambda _: any(entry["step"] == step for entry in self.notes("waits")))
        return int(self.notes("waits")[-1]["pid"])

    def take_away(self, takers: list[Callable[[int], object]]) -> None:
        """Remove the job after each step at which it waits."""
        for step, take in zip(TAKEN, takers, strict=True):
            take(self.pid_at(step))

    def check(self, checkpoint: Callable[[str], Path]) -> None:
        """Check that six attempts ran each step once and the trial succeeded. `checkpoint`: folder, by trial id."""
        self.daemon.wait(self.id, "DONE", timeout_s=60)
        (trial,) = self.daemon.trials(self.id)
        assert (trial["status"], trial["finalValue"], trial["attempt"]) == ("SUCCEEDED", UNTIL, len(TAKEN) + 1)
        assert [entry["step"] for entry in self.notes("started")] == [0, *TAKEN]
        done = (checkpoint(trial["id"]) / "steps").read_text().split()
        assert done == [str(step) for step in range(1, UNTIL + 1)]
        values = [json.loads(result["result"]) for result in self.daemon.results(self.id, type="PERIODICAL")]
        assert values == list(range(1, UNTIL + 1)), "each was reported once"


def _kill(pid: int) -> None:
    os.killpg(os.getpgid(pid), signal.SIGKILL)


def test_local_job_continues_after_five_losses(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    run = Counting(daemon, tmp_path, code, {"platform": "local"}, maxTrialRetries=5)

    def with_keeper(pid: int) -> None:
        os.kill(daemon.keeper_pid(), signal.SIGKILL)
        _kill(pid)

    def with_daemon(pid: int) -> None:
        daemon.kill()
        _kill(pid)
        daemon.start()

    def with_both(pid: int) -> None:
        daemon.kill()
        os.kill(daemon.keeper_pid(), signal.SIGKILL)
        _kill(pid)
        daemon.start()

    run.take_away([_kill, with_keeper, with_daemon, with_both, _kill])
    run.check(lambda trial: daemon.data / run.id / "trials" / f"{trial}-checkpoint")


def test_pod_continues_after_five_deletions(
    listening: Daemon, cluster: FakeCluster, code: Path, tmp_path: Path
) -> None:
    """The checkpoint is on storage that pods mount; each loss removes the whole pod."""
    role = {"replicas": 1, "cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1"}
    service = {
        "platform": "kubeflow",
        "operator": "tf-operator",
        "apiVersion": "v1",
        "nniManagerIp": "127.0.0.1",
        "kubeconfig": str(cluster.kubeconfig),
        "storage": {"storageType": "nfs", "server": SERVER, "path": EXPORT},
        "worker": role,
    }
    notes = cluster.share(tmp_path / "notes-of-pods")
    run = Counting(listening, notes, code, service, python="python3", maxPlatformRetries=5)

    def delete_pod(pid: int) -> None:
        (pod,) = [one for one in cluster.objects(PODS) if one["status"]["phase"] == "Running"]
        meta = pod["metadata"]
        cluster.control("delete", resource="pods", namespace=meta["namespace"], name=meta["name"])

    run.take_away([delete_pod] * len(TAKEN))
    run.check(lambda trial: folder_of(cluster.mounted / "nni", run.id) / f"{trial}-checkpoint")
    assert picked(listening.attempts(run.id)[:-1], "givenUp") == [("PLATFORM",)] * len(TAKEN)


def test_hyperband_hands_checkpoints_from_one_budget_to_the_next(daemon: Daemon, tmp_path: Path) -> None:
    """Each trial trains up to its budget, from the checkpoint of the trial with less budget. One attempt is lost.

    A checkpoint is removed when no budget needs it.
    """
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.sh").write_text(
        """budget=$(jq .parameters.TRIAL_BUDGET "$NNI_SYS_DIR/parameter.cfg")
x=$(jq .parameters.x "$NNI_SYS_DIR/parameter.cfg")
file=$NNI_CHECKPOINT_DIR/epochs
touch "$file"; echo "$x $budget $(wc -l < "$file")" >> "$NOTES"
while [ "$(wc -l < "$file")" -lt "$budget" ]; do echo "$NNI_TRIAL_JOB_ID $x" >> "$file"; done
[ "$budget" != 3 ] || ! mkdir "$NOTES.failed" 2> /dev/null || exit 3
echo "{\\"type\\": \\"final\\", \\"value\\": $x}" >> "$NNI_OUTBOX"
"""
    )
    config = {
        "searchSpace": SPACE,
        "trialCommand": "sh train.sh",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 13,
        "maxTrialRetries": 1,
        "tuner": {"name": "Hyperband", "classArgs": {"R": 9, "eta": 3, "exec_mode": "serial"}},
        "keepCheckpoints": "none",
        "trainingService": {"platform": "local"},
    }
    id_ = daemon.create(config, code, {**os.environ, "NOTES": str(tmp_path / "notes")})
    daemon.wait(id_, "DONE", timeout_s=60)
    daemon.wait_for(id_, lambda _: not list((daemon.data / id_ / "trials").glob("*-checkpoint")))
    assert daemon.status(id_)["counts"] == {"SUCCEEDED": 13}
    begun = [
        (float(x), float(budget), int(had))
        for x, budget, had in map(str.split, (tmp_path / "notes").read_text().splitlines())
    ]
    best = sorted((x for x, budget, _ in begun if budget == 1), reverse=True)
    found = sorted(set(begun) - {one for one in begun if one[1] == 1})
    retried = [one for one in found if one[1] == 3 and one[2] == 3]
    assert len(retried) == 1, "the attempt that was taken away left its own checkpoint"
    assert [one for one in found if one not in retried] == sorted([*((x, 3, 1) for x in best[:3]), (best[0], 9, 3)])


def test_only_best_checkpoints_are_kept_across_daemon_kills(daemon: Daemon, code: Path) -> None:
    """The checkpoint of a failed trial is kept, too."""
    command = """echo state > "$NNI_CHECKPOINT_DIR/state"; [ "$NNI_TRIAL_SEQ_ID" != 3 ] || exit 1
echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    config = {
        "searchSpace": SPACE,
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 8,
        "keepCheckpoints": "best 2",
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    id_ = daemon.create(config, code)
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED", 0) >= 3)
    daemon.kill()
    daemon.start()
    daemon.wait(id_, "DONE", timeout_s=60)
    numbers = {trial["id"]: trial["sequenceId"] for trial in daemon.trials(id_)}
    folders = daemon.data / id_ / "trials"
    daemon.wait_for(id_, lambda _: len(list(folders.glob("*-checkpoint"))) == 3)
    assert sorted(numbers[one.name.partition("-")[0]] for one in folders.glob("*-checkpoint")) == [3, 6, 7]


def _service(machines: list[RealMachine], drained: RealMachine | None = None, **fields: Any) -> dict[str, Any]:
    python = str(Path(sys.executable).parent)
    entries = [machine.entry(pythonPath=python, drain=machine is drained) for machine in machines]
    return {"platform": "remote", "machineList": entries, **fields}


def test_other_machine_continues_after_five_losses(
    daemon: Daemon, code: Path, machines: list[RealMachine], tmp_path: Path
) -> None:
    """Each time the trial's machine is drained, and its checkpoint is copied to the other machine."""
    run = Counting(daemon, tmp_path, code, _service(machines), python="python3", maxTrialRetries=5)

    def to_the_other(pid: int) -> None:
        (home,) = [one for one in machines if str(one.home) in " ".join(psutil.Process(pid).environ().values())]
        section = _service(machines, drained=home)
        daemon.call("PATCH", f"/experiments/{run.id}", json={"trainingService": section})
        _kill(pid)

    run.take_away([to_the_other] * len(TAKEN))
    (trial,) = daemon.trials(run.id)
    folders = [next(one.home.rglob(f"{trial['id']}-checkpoint")) for one in machines]
    run.check(lambda _: max(folders, key=lambda folder: len((folder / "steps").read_text())))
    assert all(folder.is_dir() for folder in folders), "it was on both machines"


def test_checkpoint_on_an_unreachable_machine_is_named(
    daemon: Daemon, code: Path, machines: list[RealMachine], tmp_path: Path
) -> None:
    service = _service(machines, machineGracePeriod="1s")
    run = Counting(daemon, tmp_path, code, service, python="python3", maxPlatformRetries=1)
    pid = run.pid_at(TAKEN[0])
    (home,) = [one for one in machines if str(one.home) in " ".join(psutil.Process(pid).environ().values())]
    asyncio.run(home.stop())
    daemon.wait_for(run.id, lambda _: len(run.notes("started")) == 2, timeout_s=90)
    assert [entry["step"] for entry in run.notes("started")] == [0, 0]
    (trial,) = daemon.trials(run.id)
    (other,) = [one for one in machines if one is not home]
    (stderr,) = other.home.rglob(f"{trial['id']}-2/stderr")
    assert "the checkpoint was not brought here from another machine: 127.0.0.1 unreachable" in stderr.read_text()
