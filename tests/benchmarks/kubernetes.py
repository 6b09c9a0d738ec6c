"""Trials of two seconds on a cluster, twenty and a hundred at once, with and without TLS between runners and daemon.

Each runs the real trial runner, forked from a process of the cluster. Figures: the daemon's CPU time, its requests to
the API server, and its delay in noticing changes.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import subject
from tests.benchmarks.table import FLOOR, Table, at_most
from tests.certificates import Authority
from tests.live_daemon import Daemon

TRIALS, AT_ONCE = 200, (20, 100)
WIDE = (100, 2_000)
#: Seconds of a pod that runs no process: long enough that most of them run at the same time.
_WIDE_S = 90
#: A plain shell command: the cost of the trials is not measured.
COMMAND = """sleep 2; echo '{"type": "final", "value": 0.5}' >> "$NNI_OUTBOX"; echo done"""
_LOOK_S = 0.01
ROOT = Path(__file__).parents[2]


def measure(folder: Path, table: Table) -> None:
    folder.mkdir(parents=True)
    for is_tls in (True, False):
        place = folder / ("tls" if is_tls else "plain")
        place.mkdir()
        with _cluster(place) as cluster, _daemon(place, is_tls=is_tls) as daemon:
            cluster.tell("fork", selector="forked=yes")
            _run(daemon, cluster, place, trials=2, at_once=2)  # connects, and makes what is made once
            _measure(table, daemon, cluster, place, is_tls=is_tls)
    narrow = _wide(folder, WIDE[0])
    for at_once in WIDE:
        cpu_ms = narrow if at_once == WIDE[0] else _wide(folder, at_once)
        name = f"CPU ms of the daemon a trial, {at_once:,} pods at a time that only take {_WIDE_S} s; floor: {WIDE[0]}"
        table.row(name, cpu_ms, at_most(1.5, FLOOR), floor=narrow)


def _wide(folder: Path, at_once: int) -> float:
    """CPU milliseconds of the daemon for a trial whose pod runs no process, as thousands would not fit here."""
    place = folder / f"wide-{at_once}"
    place.mkdir()
    with _cluster(place) as cluster, _daemon(place, is_tls=True) as daemon:
        cluster.tell("pretend", selector="forked=yes", seconds=_WIDE_S)
        before_s = _cpu_s(daemon)
        id_ = daemon.create(_config(cluster, trials=at_once, at_once=at_once), place / "ours" / "code")
        state = daemon.wait(id_, "DONE", timeout_s=500)
        assert state["counts"] == {"SUCCEEDED": at_once}
        return (_cpu_s(daemon) - before_s) / at_once * 1000


def _measure(table: Table, daemon: Daemon, cluster: _Cluster, folder: Path, *, is_tls: bool) -> None:
    before, id_, seen = cluster.tell("counts"), "", {}
    for at_once in AT_ONCE:
        with subject.TunerMeter(daemon) as tuner:
            cpu_s = _cpu_s(daemon)
            id_, seen = _run(daemon, cluster, folder, trials=TRIALS, at_once=at_once, on_first=tuner.begin)
            cpu_ms = (_cpu_s(daemon) - cpu_s) / TRIALS * 1000
        how = (
            f"{at_once} at a time, {'with TLS' if is_tls else 'without TLS'} (tuner {tuner.cpu_s / TRIALS * 1000:.2g})"
        )
        table.row(f"CPU ms of the daemon a trial on a cluster, {how}", cpu_ms, at_most(10))
    if is_tls:
        after = cluster.tell("counts")
        _report(table, daemon, id_, seen, cluster.tell("timeline", resource="tfjobs.kubeflow.org"))
        opened = max(count for name, count in after.items() if name.split()[0] in ("list", "watch"))
        table.row(f"lists or watches of one kind for {2 * TRIALS} trials on a cluster, the most", opened, at_most(3))
        asked = {name: count - before.get(name, 0) for name, count in sorted(after.items())}
        print(f"<!-- asked of the API server meanwhile: {json.dumps(asked)} -->")


@contextlib.contextmanager
def _daemon(folder: Path, *, is_tls: bool) -> Iterator[Daemon]:
    files: tuple[Path, ...] = ()
    if is_tls:
        authority = Authority(folder)
        files = (*authority.issue("127.0.0.1"), authority.file)
    names = ("NNI_MANAGER_TRIAL_TLS_CERTIFICATE", "NNI_MANAGER_TRIAL_TLS_KEY", "NNI_MANAGER_TRIAL_TLS_AUTHORITY")
    told = dict(zip(names, map(str, files), strict=False))
    with subject.running(folder / "ours", "--port", "0", "--trial-host", "127.0.0.1", environment=told) as daemon:
        yield daemon


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
        # the runner reports the end before the cluster does
        table.row(
            f"ms from `{word}` in the cluster to {status} on the trial, p95", late[int(0.95 * len(late))], at_most(200)
        )


def _object_name(told: dict[str, Any], handle: str) -> str:
    """Find a value anywhere in a handle."""
    return next((name for name in told if f'"{name}' in handle.replace("\\", "")), "")


def _run(
    daemon: Daemon,
    cluster: _Cluster,
    folder: Path,
    *,
    trials: int,
    at_once: int,
    on_first: Callable[[], None] = lambda: None,
) -> tuple[str, dict[str, dict[str, float]]]:
    """`on_first`: called when the first trial has ended."""
    id_ = daemon.create(_config(cluster, trials=trials, at_once=at_once), folder / "ours" / "code")
    with _Watcher(daemon, id_) as watcher:
        daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED"), timeout_s=120)
        on_first()
        daemon.wait(id_, "DONE", timeout_s=600)
    ((missing,),) = daemon.rows(id_, "SELECT sum(final_data IS NULL) FROM trials")
    assert missing == 0, f"{missing} trials have no final result"
    return id_, watcher.seen


def _config(cluster: _Cluster, *, trials: int, at_once: int) -> dict[str, Any]:
    role = {
        "replicas": 1,
        "dockerImage": "x",
        "cpuNumber": 1,
        "memorySize": "64mb",
        "gpuNumber": 0,
        "command": COMMAND,
        "codeDirectory": ".",
    }
    service = {
        "platform": "kubeflow",
        "operator": "tf-operator",
        "apiVersion": "v1",
        "kubeconfig": str(cluster.kubeconfig),
        "worker": role,
        "storage": {"storageType": "nfs", "server": "nas", "path": "/data"},
        "reuseMode": False,
        "channel": "push",
        "podTemplate": {"metadata": {"labels": {"forked": "yes"}}},
    }
    config = subject.config(trials=trials, at_once=at_once)
    del config["trialCommand"]
    return {**config, "nniManagerIp": "127.0.0.1", "trainingService": service}


def _cpu_s(daemon: Daemon) -> float:
    """Seconds on a processor, user and system, of the daemon's process, also of threads that have ended."""
    assert daemon.process is not None
    return sum(psutil.Process(daemon.process.pid).cpu_times()[:2])


class _Watcher(threading.Thread):
    """Records when each trial got each status, by polling the database."""

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
    """The fake API server, as a separate process."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        (folder / "export").mkdir()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.fakes.kubernetes",
                "--folder",
                str(folder / "cluster"),
                "--managed-fields",
                "--nodes",
                "64",
                "--kubeconfig",
                str(self.kubeconfig),
                "--export",
                f"nas:/data={folder / 'export'}",
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=(folder / "cluster.log").open("wb"),
        )
        assert self._process.stdout is not None
        self._url = json.loads(self._process.stdout.readline())["control"]
        self._context = ssl._create_unverified_context()

    def tell(self, name: str, **given: Any) -> Any:
        body = json.dumps(given).encode()
        with urllib.request.urlopen(f"{self._url}{name}", body, context=self._context, timeout=20) as answer:
            return json.load(answer)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[_Cluster]:
    cluster = _Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()
