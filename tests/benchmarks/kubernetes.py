"""Five hundred trials on a cluster, a hundred at once, whose pods only pretend, beside twenty whose pods really run.

What the daemon asks of the API server, how soon it knows what happened there, and what that costs it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import lite, subject
from tests.benchmarks.table import Table, at_most
from tests.live_daemon import Daemon

TRIALS, AT_ONCE, REAL = 500, 100, 20
_PRETENDED_S = 2.0
_LOOK_S = 0.01
ROOT = Path(__file__).parents[2]


def measure(folder: Path, table: Table) -> None:
    folder.mkdir(parents=True)
    with _cluster(folder) as cluster, subject.running(folder / "ours", "--port", "0") as daemon:
        cluster.tell("pretend", selector="pretended=yes", seconds=_PRETENDED_S)
        _run(daemon, cluster, folder, trials=2, at_once=2, label="no")  # connects, and makes what is made once
        before, cpu_s = cluster.tell("counts"), _cpu_s(daemon)
        real = threading.Thread(target=_run, args=(daemon, cluster, folder), kwargs={"trials": REAL, "label": "no"})
        real.start()
        id_, seen = _run(daemon, cluster, folder, trials=TRIALS, at_once=AT_ONCE, label="yes")
        real.join()
        cpu_ms = (_cpu_s(daemon) - cpu_s) / (TRIALS + REAL) * 1000
        after = cluster.tell("counts")
        _report(table, daemon, id_, seen, cluster.tell("timeline", resource="tfjobs.kubeflow.org"))
    opened = max(count for name, count in after.items() if name.split()[0] in ("list", "watch"))
    table.row("lists or watches of one kind for 520 trials on a cluster, the most", opened, at_most(3))
    table.row("CPU ms of the daemon a trial on a cluster, 100 at a time", cpu_ms, at_most(10))
    asked = {name: count - before.get(name, 0) for name, count in sorted(after.items())}
    print(f"<!-- asked of the API server meanwhile: {json.dumps(asked)}; it had {cluster.cpu_s:.1f} s of CPU -->")


def _report(table: Table, daemon: Daemon, id_: str, seen: dict[str, dict[str, float]], told: dict[str, Any]) -> None:
    names = {
        trial: _object_name(told, handle) for trial, handle in daemon.rows(id_, "SELECT trial_id, handle FROM attempts")
    }
    for status, word in (("RUNNING", "Running"), ("SUCCEEDED", "Succeeded")):
        late = sorted(
            seen[trial][status] - moments[word]
            for trial, name in names.items()
            if word in told.get(name, {}) and status in seen.get(trial, {})
            for moments in [told[name]]
        )
        assert len(late) > TRIALS / 2, f"{len(late)} of {TRIALS} trials were seen {status}"
        # of pods that only pretend, a last delivery is waited for in vain: their ends are no measure of what is seen
        bars = [at_most(200)] if status == "RUNNING" else []
        table.row(f"ms from `{word}` in the cluster to {status} on the trial, p95", late[int(0.95 * len(late))], *bars)


def _object_name(told: dict[str, Any], handle: str) -> str:
    """A handle says it somewhere."""
    return next((name for name in told if f'"{name}' in handle.replace("\\", "")), "")


def _run(
    daemon: Daemon, cluster: _Cluster, folder: Path, *, trials: int, at_once: int = REAL, label: str
) -> tuple[str, dict[str, dict[str, float]]]:
    id_ = daemon.create(_config(cluster, folder, trials=trials, at_once=at_once, label=label), folder / "ours" / "code")
    with _Watcher(daemon, id_) as watcher:
        daemon.wait(id_, "DONE", timeout_s=600)
    return id_, watcher.seen


def _config(cluster: _Cluster, folder: Path, *, trials: int, at_once: int, label: str) -> dict[str, Any]:
    role = {"replicas": 1, "dockerImage": "x", "cpuNumber": 1, "memorySize": "64mb", "gpuNumber": 0,
            "command": lite.COMMAND, "codeDirectory": "."}  # fmt: skip
    service = {
        "platform": "kubeflow", "operator": "tf-operator", "apiVersion": "v1", "kubeconfig": str(cluster.kubeconfig),
        "worker": role, "storage": {"storageType": "nfs", "server": "nas", "path": "/data"}, "reuseMode": False,
        "channel": "push", "podTemplate": {"metadata": {"labels": {"pretended": label}}},
    }  # fmt: skip
    config = subject.config(trials=trials, at_once=at_once)
    del config["trialCommand"]
    return {**config, "nniManagerIp": "127.0.0.1", "trainingService": service}


def _cpu_s(daemon: Daemon) -> float:
    assert daemon.process is not None
    return subject.runtime_s(psutil.Process(daemon.process.pid))


class _Watcher(threading.Thread):
    """Notes when each trial got each status, by looking into the database all the time."""

    def __init__(self, daemon: Daemon, id_: str) -> None:
        super().__init__()
        self._path = daemon.data / id_ / "db" / "nni.sqlite"
        self._over = threading.Event()
        #: Trial → status → milliseconds since 1970.
        self.seen: dict[str, dict[str, float]] = {}

    def __enter__(self) -> _Watcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_LOOK_S):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self._path)) as connection:
                while not self._over.wait(_LOOK_S):
                    rows = connection.execute("SELECT id, status FROM trials").fetchall()
                    now = time.time() * 1000
                    for trial, status in rows:
                        self.seen.setdefault(trial, {}).setdefault(status, now)


class _Cluster:
    """The fake API server, as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        (folder / "export").mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.kubernetes", "--folder", str(folder / "cluster"), "--nodes", "4",
             "--kubeconfig", str(self.kubeconfig), "--export", f"nas:/data={folder / 'export'}"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=(folder / "cluster.log").open("wb"),
        )  # fmt: skip
        assert self._process.stdout is not None
        self.cpu_s = 0.0
        self._url = json.loads(self._process.stdout.readline())["control"]
        self._context = ssl._create_unverified_context()

    def tell(self, name: str, **given: Any) -> Any:
        body = json.dumps(given).encode()
        with urllib.request.urlopen(f"{self._url}{name}", body, context=self._context, timeout=20) as answer:
            return json.load(answer)

    def close(self) -> None:
        self.cpu_s = sum(psutil.Process(self._process.pid).cpu_times()[:2])
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[_Cluster]:
    cluster = _Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()
