"""Time to the first result, cost of an idle experiment, and duration of a stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from tests.benchmarks import lite, subject, upstream
from tests.benchmarks.table import FLOOR, NNI, Table, at_most
from tests.live_daemon import Daemon

REPEATS = 3
#: Repetitions of measurements that take less than a second.
_STARTS = 10
_IDLE_S = 20
_SLEEPER = "sleep 1000"
_NNICTL = "from nni_manager.cli.main import nnictl; nnictl()"


def measure(folder: Path, table: Table) -> None:
    nni_first = [_nni_first_final(folder / f"nni-{repeat}") for repeat in range(REPEATS)]
    cold = [_first_final_cold(folder / f"cold-{repeat}") for repeat in range(REPEATS)]
    name = "`nnictl create` → first final result, s"
    table.row(f"{name}, nothing running", cold, at_most(0.25, NNI), nni=nni_first)
    nni_idle = _nni_idle_percent(folder / "nni-idle")
    nni_stop = _nni_stop(folder / "nni-stop")
    with subject.running(folder / "ours") as daemon:
        _first_final(daemon, folder / "ours")
        warm = [_seconds(lambda: _first_final(daemon, folder / "ours")) for _ in range(REPEATS)]
        table.row("create → first final result, s, the daemon runs", warm, at_most(0.3), nni=nni_first)
        table.row("idle CPU, % of a core, one sleeping trial", _idle(daemon, folder), at_most(0.1), nni=nni_idle)
        stops = [_stop(daemon, folder) for _ in range(REPEATS)]
        table.row("stop with four running trials, s", stops, at_most(0.3), nni=nni_stop)


def first_answer(folder: Path, table: Table) -> None:
    """The start of a daemon, compared with importing two of its libraries."""
    imports, starts = [], []
    for repeat in range(_STARTS + 1):
        imports.append(_seconds(lambda: subprocess.run([sys.executable, "-c", "import fastapi, uvicorn"], check=True)))
        starts.append(_first_answer(folder / str(repeat)))
    name = "`serve` → first answer, s; floor: `import fastapi, uvicorn`"
    table.row(name, starts[1:], at_most(2.0, FLOOR), floor=imports[1:])  # the first of each read the files


def _first_answer(folder: Path) -> float:
    daemon = Daemon(folder / "data", environment={"HOME": str(folder)})
    daemon.data.mkdir(parents=True)
    started = time.perf_counter()
    daemon.start()
    daemon.call("GET", "/daemon")
    seconds = time.perf_counter() - started
    daemon.terminate()
    return seconds


def _first_final_cold(folder: Path) -> float:
    """From the command to the result in the API, including the start of daemon and keeper."""
    lite.write(folder / "code")
    daemon = Daemon(folder / "data")
    file = folder / "code" / "config.json"
    file.write_text(json.dumps(subject.config(trials=1, at_once=1)))
    environment = {**os.environ, "NNI_MANAGER_DATA": str(daemon.data), "HOME": str(folder), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", _NNICTL, "create", "--config", str(file)]
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _wait_for_a_result(daemon)
        seconds = time.perf_counter() - started
        assert process.wait(30) == 0
    daemon.call("POST", "/experiments/stop")
    return seconds


def _wait_for_a_result(daemon: Daemon) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, httpx.TransportError), daemon.client() as client:
            while True:
                experiments = client.get("/api/v1/experiments").json()["experiments"]
                if experiments and client.get(f"/api/v1/experiments/{experiments[0]['id']}").json()["best"]:
                    return
                time.sleep(0.002)
        time.sleep(0.002)
    raise AssertionError("no result")


def _first_final(daemon: Daemon, folder: Path) -> None:
    """Polled, because events are paced."""
    id_ = daemon.create(subject.config(trials=1, at_once=1), folder / "code")
    with daemon.client() as client:
        while client.get(f"/api/v1/experiments/{id_}").json()["best"] is None:
            time.sleep(0.002)


def _idle(daemon: Daemon, folder: Path) -> float:
    sleeper = daemon.create(subject.config(trials=1, at_once=1, command=_SLEEPER), folder / "ours" / "code")
    daemon.wait_for(sleeper, lambda state: state["counts"].get("RUNNING"))
    time.sleep(2)
    percent = subject.idle_percent(subject.processes(daemon), _IDLE_S)
    daemon.call("POST", f"/experiments/{sleeper}/stop")
    return percent


def _stop(daemon: Daemon, folder: Path) -> float:
    four = daemon.create(subject.config(trials=4, at_once=4, command=_SLEEPER), folder / "ours" / "code")
    daemon.wait_for(four, lambda state: state["counts"].get("RUNNING") == 4)
    return _seconds(lambda: daemon.call("POST", f"/experiments/{four}/stop"))


def _nni_first_final(folder: Path) -> float:
    with upstream.Nni(folder) as nni:
        started = time.perf_counter()
        nni.create(subject.config(trials=1, at_once=1, command=lite.NNI_COMMAND), tries=1)
        nni.wait_for(lambda: nni.get("metric-data?type=FINAL"), every_s=0.002)
        return time.perf_counter() - started


def _nni_idle_percent(folder: Path) -> float:
    with upstream.Nni(folder) as nni:
        nni.create(subject.config(trials=1, at_once=1, command=_SLEEPER))
        nni.wait_for(lambda: nni.get("trial-jobs"))
        time.sleep(5)
        return subject.idle_percent(nni.processes(), _IDLE_S)


def _nni_stop(folder: Path) -> float:
    with upstream.Nni(folder) as nni:
        nni.create(subject.config(trials=4, at_once=4, command=_SLEEPER))
        nni.wait_for(lambda: len(nni.get("trial-jobs")) == 4)
        return nni.stop()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
