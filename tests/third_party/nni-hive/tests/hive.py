"""A Hive as a process, and what is done to it from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKEN = "honey-pot-0042"


class Hive:
    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.url = f"http://127.0.0.1:{ports['port']}"
        self._control = f"http://127.0.0.1:{ports['control']}"
        self._log = folder / "requests.log"

    def act(self, verb: str, **arguments: Any) -> Any:
        request = urllib.request.Request(f"{self._control}/{verb}", json.dumps(arguments).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())

    def log(self) -> list[tuple[float, str]]:
        """When, by its own clock in seconds, and what it was asked."""
        lines = (line.split(" ", 1) for line in self._log.read_text().splitlines())
        return [(float(moment), what) for moment, what in lines]

    @property
    def logins(self) -> int:
        return [what for _, what in self.log()].count("login")


@contextmanager
def running_hive(folder: Path) -> Iterator[Hive]:
    program = [sys.executable, str(Path(__file__).parent / "hive_server"), str(folder), "0", "0"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Hive(folder, json.loads(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


def section(hive: Hive, token: str = TOKEN) -> dict[str, str]:
    return {"platform": "hive", "url": hive.url, "account": "bees", "token": token}
