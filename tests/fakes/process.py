"""A fake as a separate process, and the calls that control it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import sandbox
from tests.fork_server.popen import Popen

_ROOT = Path(__file__).parents[2]


class FakeProcess:
    """`name`: of the fake's package; `folder`: persistent state. Keeps its port."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str] = ()) -> None:
        self._command = [sys.executable, "-m", f"tests.fakes.{name}", "--folder", str(folder), *arguments]
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.address = ""

    def start(self) -> None:
        """Start it and return when it answers."""
        command = [*self._command, *(["--port", str(self._port)] if self._port else [])]
        self._process = Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self._port = int(self.address.rpartition(":")[2])

    def stop(self, *, kill: bool = False) -> None:
        """Kill it, if it runs; its containers continue."""
        process, self._process = self._process, None
        if process is not None:
            (process.kill if kill else process.terminate)()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def control(self, verb: str, **body: object) -> Any:
        """The answer of its ``/fake/VERB``."""
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(f"{self.address}/fake/{verb}", data, timeout=30) as answer:
            return json.load(answer)


@contextmanager
def running(name: str, folder: Path, *arguments: str) -> Iterator[FakeProcess]:
    """A fake that is ended with all its processes. Skips with a reason if containers cannot be created for its jobs."""
    if reason := sandbox.missing():
        pytest.skip(reason)
    fake = FakeProcess(name, folder, arguments)
    fake.start()
    try:
        yield fake
    finally:
        try:
            fake.control("reset", users={})
        finally:
            fake.stop()
