"""Experiments on a real Slurm whose trials prove that each runs alone and reports its own result."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.fakes.slurm.cluster import SlurmCluster
from tests.live_daemon import Daemon
from tests.platforms.remote.ssh_machines import RealMachine
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

    def ran_once(self, trials: int) -> None:
        """Asserts, after the end, that every trial had one job, which started once, and that no job is left."""
        lines = {path.name: path.read_text() for path in self.noted.iterdir()}
        assert len(lines) == trials and set(lines.values()) == {"started\n"}, lines
        assert self.jobs("%i") == []
        started = [name.partition("_trial_")[2] for nodes, name in self.jobs("%N", "%j", states="all") if nodes]
        assert len(started) == len(set(started)) == trials, sorted(started)

    def jobs(self, *fields: str, states: str = "") -> list[list[str]]:
        """The experiment's jobs in the queue: values of these format letters. `states`: default: of those that have
        not ended."""
        chosen = [f"--states={states}"] if states else []
        rows = self.cluster.call("squeue", "-h", *chosen, "-o", "|".join([*fields, "%j"])).stdout.splitlines()
        return [row.split("|")[:-1] for row in rows if f"_{self.id}_" in row]

    @contextmanager
    def each_alone(self) -> Iterator[None]:
        """A context in which no trial has two processes at a time on all nodes, and after which none is left."""
        most: Counter[str] = Counter()
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_EVERY_S):
                most.update({name: 1 for name, number in self._alive().items() if number > 1})

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
        assert not most, f"trials with two processes: {most}"
        until(lambda: not self._alive(), what="the end of all processes of trials")

    def _alive(self) -> Counter[str]:
        """Trial → number of its processes. The process tables of nodes are parts of this machine's."""
        found: Counter[str] = Counter()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
                if b"trial.py" in words[1:2] and str(self.noted).encode() in words:
                    variables = (folder / "environ").read_bytes().split(b"\0")
                    found.update(one.decode() for one in variables if one.startswith(b"NNI_TRIAL_JOB_ID="))
        return found


#: Seconds between two looks at the processes.
_LOOK_EVERY_S = 0.3


@contextmanager
def program_in_front(cluster: SlurmCluster, folder: Path, name: str, script: str) -> Iterator[Path]:
    """A context in which clients find a script instead of a program. `{real}` in it is the program, `{folder}` the new
    folder of the script, which this returns."""
    folder.mkdir()
    real = cluster.call("sh", "-c", f"command -v {name}").stdout.strip()
    (folder / name).write_text(script.format(real=real, folder=folder))
    (folder / name).chmod(0o755)
    cluster.front = str(folder)
    try:
        yield folder
    finally:
        cluster.front = ""


@contextmanager
def login_node(cluster: SlurmCluster, folder: Path) -> Iterator[RealMachine]:
    """A context with a machine that has the cluster's programs. `folder`: made for it."""
    login = RealMachine(folder)
    login.environment = {"SLURM_CONF": str(cluster.conf)}
    (login.home / ".bash_profile").write_text(f"export PATH={cluster.environment['PATH']}\n")
    asyncio.run(login.start())
    try:
        yield login
    finally:
        asyncio.run(login.stop())
