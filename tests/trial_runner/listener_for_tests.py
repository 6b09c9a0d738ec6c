"""A runner in a process of its own, and a listener that it posts to."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.platform_kit.testing.listener import (
    MANAGER,
    PATH,
    TIMEOUT_S,
    TOKEN,
    Answer,
    Body,
    FakeListener,
    Misbehaviour,
    fake_listener,
)
from trial_runner import protocol

__all__ = [
    "MANAGER",
    "PATH",
    "TIMEOUT_S",
    "TOKEN",
    "Answer",
    "Body",
    "FakeListener",
    "Misbehaviour",
    "fake_listener",
]

ROOT = Path(__file__).parents[2]


class Runner:
    """Runners of one attempt, in `folder`."""

    def __init__(self, listener: FakeListener, folder: Path) -> None:
        self.folder = folder
        self.system_dir = folder / "nni"
        self.program = [sys.executable, "-m", "trial_runner"]
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHON": sys.executable,
            protocol.ENV_MANAGER_URL: listener.url,
            protocol.ENV_TOKEN: TOKEN,
            protocol.ENV_PLATFORM: "kubeflow",
            protocol.ENV_EXPERIMENT_ID: "exp1",
            protocol.ENV_TRIAL_ID: "abcde",
            protocol.ENV_SEQUENCE_ID: "7",
            protocol.ENV_GRACE_S: "20",
            protocol.ENV_DRAIN_S: "20",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, **environment: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            self.program,
            cwd=self.folder,
            env={**self.environment, protocol.ENV_COMMAND: command, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def run(self, command: str, **environment: str) -> "Ended":
        return self.wait(self.start(command, **environment))

    def wait(self, process: "subprocess.Popen[bytes]") -> "Ended":
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        return Ended(process.returncode, stdout.decode(errors="replace"), stderr.decode())

    def outbox_values(self) -> list[Any]:
        """What is on disk."""
        return [
            json.loads(line)["value"] for line in (self.system_dir / protocol.MAIN_OUTBOX).read_text().split("\n")[:-1]
        ]

    def end_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                _kill_tree(process.pid)
                process.communicate()


@dataclass
class Ended:
    code: int
    stdout: str
    stderr: str


@contextmanager
def runner_of(listener: FakeListener, folder: Path) -> Iterator[Runner]:
    runner = Runner(listener, folder)
    try:
        yield runner
    finally:
        runner.end_all()


def metrics(count: int) -> str:
    """A command that reports the numbers below `count`."""
    program = 'import os; f = open(os.environ["NNI_OUTBOX"], "a")\n'
    program += f'for i in range({count}): f.write(\'{{"type":"intermediate","value":%d}}\\n\' % i)'
    return f"$PYTHON -c {_quoted(program)}"


def report(value: object) -> str:
    """A command that reports one value; it may stand between single quotes."""
    line = json.dumps({"type": "intermediate", "value": value}).replace('"', '\\"')
    return f'echo "{line}" >> $NNI_OUTBOX'


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _kill_tree(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    pids = [int(child) for child in children.read_text().split()] if children.exists() else []
    for each in (*pids, pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
