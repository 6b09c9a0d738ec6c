"""`nnictl` as a separate process with its own data directory, and the processes and files that it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.fork_server.popen import Popen, take_interrupts
from tests.live_daemon import Daemon, end_all, processes_of

#: Commands of trials: report a number and exit; run until stopped.
REPORT = """echo '{"type": "final", "value": 7}' >> "$NNI_OUTBOX" """
RUN_ON = "echo running; exec sleep 1000"


class CommandLine:
    """All processes that it starts contain the name of `folder`."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        self.runtime = runtime
        self.data = folder / "data"
        own = {
            "NNI_MANAGER_DATA": str(self.data),
            "XDG_RUNTIME_DIR": str(runtime),
            "NNI_MANAGER_TOKEN": "",
            "HOME": str(folder / "home"),
        }
        self.environment = {**os.environ, **own}
        self._served: list[Daemon] = []

    def run(self, *words: object, program: str = "nnictl") -> subprocess.CompletedProcess[str]:
        """Run a command to its end; the caller checks the exit code."""
        with self.start(*words, program=program) as process:
            out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def good(self, *words: object) -> str:
        """What it prints; it must exit with 0 and have nothing to complain of, but may warn."""
        done = self.run(*words)
        complaints = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
        assert (done.returncode, complaints) == (0, []), done.stderr + self.log()
        return done.stdout

    def bad(self, *words: object, program: str = "nnictl") -> tuple[int, str]:
        """Exit code, and its single error line."""
        done = self.run(*words, program=program)
        assert done.returncode != 0 and done.stdout == "", done.stdout
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and "Traceback" not in lines[0] and "please report it" not in lines[0], done.stderr
        return done.returncode, lines[0]

    def start(self, *words: object, program: str = "nnictl") -> subprocess.Popen[str]:
        """Start a command in its own process group, as a shell does."""
        return Popen(
            [str(Path(sys.executable).with_name(program)), *map(str, words)],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=take_interrupts,
        )

    def config(self, name: str = "experiment.yml", **fields: object) -> Path:
        """An experiment file; None leaves a field out."""
        values = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": REPORT,
            "trialConcurrency": 2,
            "maxTrialNumber": 4,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": {"platform": "local"},
            **fields,
        }
        path = self.folder / name
        path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}, indent=1))
        return path

    def create(self, **fields: object) -> str:
        """Create an experiment in the background; returns its id."""
        return id_in(self.good("create", "--config", self.config(**fields)))

    @property
    def daemon(self) -> Daemon:
        """The API of the running daemon."""
        return Daemon(self.data, environment=self.environment)

    def serve(self, *arguments: str) -> Daemon:
        """Start a daemon with `serve`, and wait until it is ready."""
        self.data.mkdir(exist_ok=True)
        served = self.daemon
        self._served.append(served)
        return served.start(*arguments)

    def end(self) -> None:
        """Kill all remaining processes."""
        end_all(str(self.folder))
        for served in self._served:
            if served.process is not None:
                served.process.wait()

    def log(self) -> str:
        path = self.data / "daemon.log"
        return path.read_text() if path.exists() else ""

    def processes(self) -> list[str]:
        """Command lines of all live processes."""
        found = []
        for process in processes_of(str(self.folder)):
            with contextlib.suppress(psutil.Error):
                found.append(" ".join(process.cmdline()))
        return found

    def traces(self) -> list[str]:
        """Leftovers of a daemon: processes, sockets, the pointer file."""
        pointer = [str(path) for path in self.data.glob("control.json*")]
        return [*self.processes(), *map(str, self.runtime.rglob("*.sock")), *pointer]


@contextmanager
def command_line(folder: Path) -> Iterator[CommandLine]:
    """A command line; all processes are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="nni-") as runtime:
        line = CommandLine(folder, Path(runtime))
        try:
            yield line
        finally:
            line.end()


def id_in(text: str) -> str:
    """The experiment that a command's output names."""
    found = re.search(r"Experiment (\w+) ", text)
    assert found is not None, text
    return found[1]


def state_of(daemon: Daemon, id_: str, **expected: Any) -> dict[str, Any]:
    """Wait until an experiment has the `expected` number of trials of each status."""
    return daemon.wait_for(id_, lambda state: {**state["counts"], **expected} == state["counts"], timeout_s=30)
