"""NNI 3.0 as its users run it: its own command line and environment, one manager process per experiment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests import nni3
from tests.benchmarks import lite, subject

_ID = re.compile(r"Experiment ID: (?:\x1b\[\d+m)?(\w+)")
#: It waits four seconds for its manager, which may be too short on a busy machine.
_TRIES = 6


class Nni:
    """One experiment with its own home folder; call `create` or `endpoint`, then `stop`.

    `nnictl`: replaces NNI's own program.
    """

    def __init__(self, folder: Path, nnictl: Path | None = None) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.code = folder / "code"
        lite.write(self.code)
        self.port = free_port()
        self.id = ""
        self._nnictl = [str(nnictl or nni3.interpreter().with_name("nnictl"))]
        self._environment = {**os.environ, "HOME": str(self.home)}
        self._environment.pop("PYTHONPATH", None)

    def __enter__(self) -> Nni:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def create(self, config: dict[str, Any], *, tries: int = _TRIES) -> None:
        """`nnictl create`; returns when the command does."""
        file = self.code / "config.yml"
        file.write_text(json.dumps(config))
        self.id = self._run("create", "--config", str(file), tries=tries)

    def create_with_tuner(self, config: dict[str, Any]) -> None:
        """Like `create`, but waits for the first trial.

        Repeats the creation if the tuner did not connect within NNI's ten seconds, as may happen on a busy machine.
        """
        for _ in range(_TRIES):
            self.create(config)
            self.wait_for(lambda: self.get("trial-jobs") or self._has_failed())
            if not self._has_failed():
                return
            self.kill()
            shutil.rmtree(self.home / "nni-experiments")
        raise AssertionError(f"NNI gave up {_TRIES} experiments before their first trial")

    def _has_failed(self) -> bool:
        return bool(self.get("check-status")["status"] == "ERROR")

    def view(self, id_: str) -> None:
        """Opens a stopped experiment for reading."""
        self._run("view", id_)
        self.id = id_

    def _run(self, *arguments: str, tries: int = _TRIES) -> str:
        command = [*self._nnictl, *arguments, "--port", str(self.port)]
        for _ in range(tries):
            done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stdout + done.stderr
        found = _ID.search(done.stdout)
        return found[1] if found else ""

    @property
    def database(self) -> Path:
        return self.home / "nni-experiments" / self.id / "db" / "nni.sqlite"

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1/nni/{path}"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url(path), timeout=60) as answer:
            return json.load(answer)

    def wait_for(self, holds: Callable[[], object], timeout_s: float = 120, every_s: float = 0.2) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, self.get("check-status")
            time.sleep(every_s)

    def wait(self, *statuses: str, timeout_s: float = 300) -> None:
        self.wait_for(lambda: self.get("check-status")["status"] in statuses, timeout_s)

    def processes(self) -> dict[str, psutil.Process]:
        """The manager and its tuner."""
        entries = json.loads((self.home / "nni-experiments" / ".experiment").read_text())
        found = {"manager": psutil.Process(entries[self.id]["pid"])}
        for child in found["manager"].children(recursive=True):
            with contextlib.suppress(psutil.Error):  # a trial that has just ended
                if "--exp_params" in child.cmdline():
                    found["tuner"] = child
        return found

    def cpu_s(self) -> float:
        """CPU seconds so far of manager and tuner."""
        return sum(subject.runtime_s(process) for process in self.processes().values())

    def stop(self) -> float:
        """Stop the experiment; returns the seconds until its manager has ended. Idempotent."""
        if not self.id:
            return 0.0
        manager, *_ = everybody = self._everybody()
        self.id = ""
        started = time.perf_counter()
        request = urllib.request.Request(self.url("experiment"), method="DELETE")
        urllib.request.urlopen(request, timeout=60).close()
        psutil.wait_procs([manager], timeout=70)
        seconds = time.perf_counter() - started
        for process in psutil.wait_procs(everybody, timeout=10)[1]:
            process.kill()  # leftover of a stopped manager
        return seconds

    def kill(self) -> None:
        """Kill its manager and all its children."""
        everybody, self.id = self._everybody(), ""
        for process in everybody:
            process.kill()
        psutil.wait_procs(everybody, timeout=10)

    def _everybody(self) -> list[psutil.Process]:
        """The manager first."""
        manager = self.processes()["manager"]
        return [manager, *manager.children(recursive=True)]


def lite_trials(folder: Path, trials: int, at_once: int) -> tuple[float, float]:
    """(trials a second from the first start to the last end, CPU milliseconds of manager and tuner a trial)."""
    with Nni(folder) as nni:
        before = begin(nni, subject.config(trials=trials, at_once=at_once, command=lite.NNI_COMMAND))
        nni.wait("DONE")
        return rate(nni), (nni.cpu_s() - before) / trials * 1000


def rate(nni: Nni) -> float:
    jobs = nni.get("trial-jobs")
    seconds = (max(job["endTime"] for job in jobs) - min(job["startTime"] for job in jobs)) / 1000
    return len(jobs) / seconds  # type: ignore[no-any-return]


def begin(nni: Nni, config: dict[str, Any]) -> float:
    """CPU seconds up to the first trial's start, which are the start of manager and tuner."""
    nni.create(config)
    nni.wait_for(lambda: nni.get("trial-jobs"), every_s=0.02)
    return nni.cpu_s()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
