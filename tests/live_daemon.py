"""A real daemon as a subprocess, its API over the control socket, and the processes that remain after it.

Used by acceptance tests and benchmarks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests import bare_python
from tests.fork_server.popen import Popen

#: Seconds without an event after which a waiting test polls.
_SILENCE_S = 1.0
#: Maximum length of a list in the API; no test creates that many trials.
_ALL = 10_000
#: Python that runs trials.
PYTHON = bare_python.own()
#: Arguments of a daemon with a service and, when needed, a trial listener.
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")


class Daemon:
    """A daemon with one data directory; it may be killed and restarted. `program`: command that serves."""

    def __init__(
        self, data: Path, *, environment: dict[str, str] | None = None, program: Sequence[str] = ("-m", "nni_manager")
    ) -> None:
        self.data = data
        # NNI's list of experiments is in the home folder; the developer's must not contain ours
        self.environment = {
            **os.environ,
            "HOME": str(data.parent / "home"),
            "PYTHONFAULTHANDLER": "1",
            **(environment or {}),
        }
        self.program = tuple(program)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> Daemon:
        """Start the daemon and return when it reports that it is ready."""
        ready, told = os.pipe()
        command = [sys.executable, *self.program, "serve", "--data-dir", str(self.data), "--ready-fd", str(told)]
        with (self.data.parent / "daemon.log").open("ab") as log:
            self.process = Popen(
                [*command, *(arguments or ("--no-listen",))],
                pass_fds=(told,),
                stdout=log,
                stderr=log,
                env=self.environment,
            )
        os.close(told)
        with os.fdopen(ready, "rb") as pipe:
            word = pipe.readline().decode().strip()
        assert word == "ready", word or self.log()
        return self

    def log(self) -> str:
        return (self.data.parent / "daemon.log").read_text()[-8000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # prints the stacks of its threads
            self.process.wait()
            raise AssertionError(f"the daemon does not end:\n{self.log()}") from None

    def client(self) -> httpx.Client:
        socket = json.loads((self.data / "control.json").read_text())["socket"]
        # `verify`: reading all certificates would take most of the time of a call
        transport = httpx.HTTPTransport(uds=socket, verify=False)
        return httpx.Client(transport=transport, base_url="http://manager", timeout=30)

    def call(self, method: str, path: str, **options: Any) -> Any:
        with self.client() as client:
            answer = client.request(method, f"/api/v1{path}", **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def create(self, config: dict[str, Any], directory: Path, environment: dict[str, str] | None = None) -> str:
        body = {
            "config": json.dumps({"experimentWorkingDirectory": str(self.data), **config}),
            "directory": str(directory),
            "environment": {**os.environ, **(environment or {})},
            "interpreter": sys.executable,
        }
        return str(self.call("POST", "/experiments", json=body)["id"])

    def status(self, id: str) -> dict[str, Any]:
        return self.call("GET", f"/experiments/{id}")  # type: ignore[no-any-return]

    def wait(self, id: str, *statuses: str, timeout_s: float = 50) -> dict[str, Any]:
        return self.wait_for(id, lambda state: state["status"] in statuses, timeout_s)

    def wait_for(self, id: str, holds: Callable[[dict[str, Any]], object], timeout_s: float = 50) -> dict[str, Any]:
        """Follow the experiment's events until `holds` is true. `holds` may also check things without an event."""
        deadline = time.monotonic() + timeout_s
        state: dict[str, Any] = {}
        while time.monotonic() < deadline:
            try:
                for state in self._states(id):
                    if holds(state):
                        return state
                    if time.monotonic() > deadline:
                        break
                break  # the experiment is closed, or the daemon ends
            except httpx.ReadTimeout:  # nothing new: the next stream starts with the current state
                continue
        raise AssertionError(f"waited in vain; last state: {state}\n{self.log()}")

    def _states(self, id: str) -> Iterator[dict[str, Any]]:
        """States at each change. Raises ReadTimeout if none comes."""
        timeout = httpx.Timeout(30, read=_SILENCE_S)
        with self.client() as client:
            with client.stream("GET", f"/api/v1/experiments/{id}/events", timeout=timeout) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line[5:])

    def trials(self, id: str, **filters: str | int) -> list[dict[str, Any]]:
        """Trials as in the API, by sequence id. `filters`: query parameters, such as `status="RUNNING"`."""
        answer = self.call("GET", f"/experiments/{id}/trials", params={"limit": _ALL, **filters})
        return answer["trials"]  # type: ignore[no-any-return]

    def trial(self, id: str, trial: str) -> dict[str, Any]:
        """A trial with its `attempts`."""
        return self.call("GET", f"/experiments/{id}/trials/{trial}")  # type: ignore[no-any-return]

    def attempts(self, id: str) -> list[dict[str, Any]]:
        """Attempts of all trials, ordered by sequence id and number; as in the API, plus `trialId`."""
        path = f"/api/v1/experiments/{id}/trials"
        with self.client() as client:
            trials = client.get(path, params={"limit": _ALL}).raise_for_status().json()["trials"]
            shown = [client.get(f"{path}/{trial['id']}").raise_for_status().json() for trial in trials]
        return [{**attempt, "trialId": trial["id"]} for trial in shown for attempt in trial["attempts"]]

    def results(self, id: str, trial: str = "", **filters: str | int) -> list[dict[str, Any]]:
        """Results of all attempts in the order of storing; `trial`: only of this one. `result` is JSON text."""
        params = {"limit": _ALL, **({"trial": trial} if trial else {}), **filters}
        return self.call("GET", f"/experiments/{id}/metrics", params=params)["metrics"]  # type: ignore[no-any-return]

    def rows(self, id: str, query: str) -> list[tuple[Any, ...]]:
        """Rows of the database, for values that are not in the API: intents, and the state while the daemon is dead."""
        with contextlib.closing(sqlite3.connect(self.data / id / "db" / "nni.sqlite", timeout=20)) as connection:
            return connection.execute(query).fetchall()

    def keeper_pid(self, within_s: float = 5, *, other_than: int = 0) -> int:
        """The keeper's process; waits for it if the daemon has just started. `other_than`: pid of a killed one."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            pid = self._keeper_of_lock()
            if pid not in (0, other_than):
                return pid
            time.sleep(0.02)
        raise AssertionError("no keeper runs")

    def _keeper_of_lock(self) -> int:
        """Pid of the keeper; 0: none. Its command line is ambiguous: a new job's process has the same at first."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid = int((self.data / "keeper" / "keeper.lock").read_text().split("\n")[0])
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return pid
        return 0


def picked(shown: Iterable[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    """These fields of each trial, attempt or result."""
    return [tuple(item[field] for field in fields) for item in shown]


@contextlib.contextmanager
def running_daemon(
    folder: Path,
    *arguments: str,
    program: Sequence[str] = ("-m", "nni_manager"),
    environment: dict[str, str] | None = None,
) -> Iterator[Daemon]:
    """A new daemon with its data below `folder`; ended with all processes that it started."""
    data = folder / "data"
    data.mkdir()
    daemon = Daemon(data, program=program, environment=environment)
    daemon.start(*arguments)
    try:
        yield daemon
    finally:
        _end(daemon)


def _end(daemon: Daemon) -> None:
    if daemon.process is not None and daemon.process.poll() is None:
        with contextlib.suppress(Exception):
            daemon.call("POST", "/experiments/stop")
        daemon.terminate()
    end_all(str(daemon.data))


def end_all(mark: str) -> None:
    """Kill the processes that contain `mark`; some may have ended since they were listed."""
    for process in processes_of(mark):
        with contextlib.suppress(psutil.Error):
            process.kill()


def assert_gone(mark: str, within_s: float = 5) -> None:
    """Whether no process that contains `mark` lives, or all end within a moment."""
    left = processes_of(mark)
    _, alive = psutil.wait_procs(left, timeout=within_s)
    assert alive == [], [process.cmdline() for process in alive]


def processes_of(mark: str) -> list[psutil.Process]:
    """Live processes with `mark` in their environment or command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            if any(mark in value for value in [*process.environ().values(), *process.cmdline()]):
                found.append(process)
    return found
