"""Experiments on a real Slurm whose trials prove that each runs alone and reports its own result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fakes.slurm.cluster import SlurmCluster
from tests.live_daemon import Daemon
from tests.waiting import until

#: A trial holds a lock while it runs; a second process of the trial notes that it found it taken.
TRIAL = """\
import fcntl, json, os, sys, time

seconds, noted = float(sys.argv[1]), sys.argv[2]
name = os.environ["NNI_TRIAL_JOB_ID"]
with open(os.path.join(os.environ["NNI_SYS_DIR"], "parameter.cfg")) as file:
    x = json.load(file)["parameters"]["x"]
lock = open(os.path.join(noted, name), "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    with open(os.path.join(noted, "doubles"), "a") as file:
        file.write(name + "\\n")
lock.write("started\\n")
lock.flush()
time.sleep(seconds)
with open(os.environ["NNI_OUTBOX"], "a") as outbox:
    outbox.write(json.dumps({"type": "final", "value": x}) + "\\n")
"""


class SlurmExperiment:
    """One experiment of a daemon. `folder`: empty, for its code and the notes of its trials."""

    def __init__(self, daemon: Daemon, cluster: SlurmCluster, folder: Path) -> None:
        self.daemon = daemon
        self.cluster = cluster
        self.code, self.noted = folder / "code", folder / "noted"
        for path in (self.code, self.noted):
            path.mkdir(parents=True)
        (self.code / "trial.py").write_text(TRIAL)
        self.id = ""

    def create(
        self,
        *,
        trials: int,
        at_once: int = 3,
        seconds: float = 2,
        others: Sequence[Mapping[str, Any]] = (),
        **section: Any,
    ) -> str:
        """`section`: fields of its training service; `others`: more training services."""
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": section.pop("command", f"python3 trial.py {seconds} {self.noted}"),
            "trialCodeDirectory": str(self.code),
            "trialGpuNumber": 0,
            "trialConcurrency": at_once,
            "maxTrialNumber": trials,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize", "seed": 1}},
            "trainingService": [{"platform": "slurm", "pollInterval": 5, **section}, *others],
        }
        self.id = self.daemon.create(config, self.code, self.cluster.environment)
        return self.id

    def until_started(self, number: int = 1) -> None:
        """Returns when this many trials run or have run."""
        until(lambda: len([path for path in self.noted.iterdir() if path.name != "doubles"]) >= number)

    def finish(self, trials: int, timeout_s: float = 100) -> list[dict[str, Any]]:
        """Waits for the end of the experiment: every trial succeeded with its own result, and never ran twice at a
        time. Returns the attempts."""
        self.daemon.wait(self.id, "DONE", timeout_s=timeout_s)
        found = self.daemon.trials(self.id)
        assert [one["status"] for one in found] == ["SUCCEEDED"] * trials, [one["message"] for one in found]
        assert [one["finalValue"] for one in found] == [one["parameters"]["x"] for one in found]
        assert not (self.noted / "doubles").exists()
        return self.daemon.attempts(self.id)

    def jobs(self, *fields: str) -> list[list[str]]:
        """The experiment's jobs in the queue that have not ended: values of these format letters."""
        rows = self.cluster.call("squeue", "-h", "-o", "|".join([*fields, "%j"])).stdout.splitlines()
        return [row.split("|")[:-1] for row in rows if f"_{self.id}_" in row]
