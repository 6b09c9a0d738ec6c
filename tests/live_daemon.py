"""A real daemon as a subprocess, its API over the control socket, and the processes that it leaves.

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
#: The most that a list of the API has; no test makes as many.
_ALL = 10_000
#: Of trials.
PYTHON = bare_python.own()
#: Arguments of a daemon with a service and, once it is needed, a trial listener.
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")


class Daemon:
    """One data directory; the process may be killed and started again. `program`: what is told to serve."""

    def __init__(
        self, data: Path, *, environment: dict[str, str] | None = None, program: Sequence[str] = ("-m", "nni_manager")
    ) -> None:
        self.data = data
        # NNI's list of experiments is in the home folder, and ours do not belong into a developer's
        self.environment = {
            **os.environ,
            "HOME": str(data.parent / "home"),
            "PYTHONFAULTHANDLER": "1",
            **(environment or {}),
        }
        self.program = tuple(program)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> Daemon:
        """Returns when it says that it is ready."""
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
            self.process.send_signal(signal.SIGABRT)  # prints where its threads are
            self.process.wait()
            raise AssertionError(f"the daemon does not end:\n{self.log()}") from None

    def client(self) -> httpx.Client:
        socket = json.loads((self.data / "control.json").read_text())["socket"]
        # `verify`: what it takes to read all certificates is most of what a call costs
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
        """Follows the experiment's events until `holds`, which may also look at what no event tells of."""
        deadline = time.monotonic() + timeout_s
        state: dict[str, Any] = {}
        while time.monotonic() < deadline:
            try:
                for state in self._states(id):
                    if holds(state):
                        return state
                    if time.monotonic() > deadline:
                        break
                break  # it is closed, or the daemon ends
            except httpx.ReadTimeout:  # nothing new: the next stream begins with the state as it is
                continue
        raise AssertionError(f"waited in vain; last state: {state}\n{self.log()}")

    def _states(self, id: str) -> Iterator[dict[str, Any]]:
        """As they change. Raises ReadTimeout after a silence."""
        timeout = httpx.Timeout(30, read=_SILENCE_S)
        with self.client() as client:
            with client.stream("GET", f"/api/v1/experiments/{id}/events", timeout=timeout) as stream:
                for line in stream.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line[5:])

    def trials(self, id: str, **filters: str | int) -> list[dict[str, Any]]:
        """As the API lists them, by sequence id. `filters`: query parameters, such as `status="RUNNING"`."""
        answer = self.call("GET", f"/experiments/{id}/trials", params={"limit": _ALL, **filters})
        return answer["trials"]  # type: ignore[no-any-return]

    def trial(self, id: str, trial: str) -> dict[str, Any]:
        """With its `attempts`."""
        return self.call("GET", f"/experiments/{id}/trials/{trial}")  # type: ignore[no-any-return]

    def attempts(self, id: str) -> list[dict[str, Any]]:
        """Of all trials by sequence id, of each by number; as the API shows them, and with `trialId`."""
        path = f"/api/v1/experiments/{id}/trials"
        with self.client() as client:
            trials = client.get(path, params={"limit": _ALL}).raise_for_status().json()["trials"]
            shown = [client.get(f"{path}/{trial['id']}").raise_for_status().json() for trial in trials]
        return [{**attempt, "trialId": trial["id"]} for trial in shown for attempt in trial["attempts"]]

    def results(self, id: str, trial: str = "", **filters: str | int) -> list[dict[str, Any]]:
        """What all attempts reported, in the order of storing; `trial`: of this one alone. `result` is JSON text."""
        params = {"limit": _ALL, **({"trial": trial} if trial else {}), **filters}
        return self.call("GET", f"/experiments/{id}/metrics", params=params)["metrics"]  # type: ignore[no-any-return]

    def rows(self, id: str, query: str) -> list[tuple[Any, ...]]:
        """Of the database: for what the API does not tell, which is the store's own: what it holds while its daemon is
        dead or held up, and intents."""
        with contextlib.closing(sqlite3.connect(self.data / id / "db" / "nni.sqlite", timeout=20)) as connection:
            return connection.execute(query).fetchall()

    def keeper_pid(self, within_s: float = 5, *, other_than: int = 0) -> int:
        """The keeper's process; a daemon that has just started may still be starting it. `other_than`: one that was
        killed."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            pid = self._keeper_of_lock()
            if pid not in (0, other_than):
                return pid
            time.sleep(0.02)
        raise AssertionError("no keeper runs")

    def _keeper_of_lock(self) -> int:
        """0: none lives. Not by its command line, which a job's process has too until it is told its own."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid = int((self.data / "keeper" / "keeper.lock").read_text().split("\n")[0])
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return pid
        return 0


def picked(shown: Iterable[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    """These fields of each of the trials, attempts or results."""
    return [tuple(item[field] for field in fields) for item in shown]


@contextlib.contextmanager
def running_daemon(
    folder: Path,
    *arguments: str,
    program: Sequence[str] = ("-m", "nni_manager"),
    environment: dict[str, str] | None = None,
) -> Iterator[Daemon]:
    """A new one with its data below `folder`; ended with everything it started."""
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
    """Kills what speaks of `mark`; some of it may have ended since it was listed."""
    for process in processes_of(mark):
        with contextlib.suppress(psutil.Error):
            process.kill()


def assert_gone(mark: str, within_s: float = 5) -> None:
    """Nothing that speaks of `mark` is alive, or it ends within a moment."""
    left = processes_of(mark)
    _, alive = psutil.wait_procs(left, timeout=within_s)
    assert alive == [], [process.cmdline() for process in alive]


def processes_of(mark: str) -> list[psutil.Process]:
    """Live processes with `mark` in environment or command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            if any(mark in value for value in [*process.environ().values(), *process.cmdline()]):
                found.append(process)
    return found
