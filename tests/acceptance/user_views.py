"""Views of an experiment outside the API: page, command line, and its tuner's notes."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.live_daemon import Daemon

Json = dict[str, Any]


def page(daemon: Daemon, path: str) -> str:
    """A page of the service, over TCP."""
    (listener,) = (listener for listener in daemon.call("GET", "/daemon")["listeners"] if listener["kind"] == "service")
    answer = httpx.get(f"{listener['address']}{path}", verify=False)
    assert answer.status_code == 200, answer.text
    return answer.text


def trials_on(daemon: Daemon, id_: str) -> dict[str, tuple[str, str]]:
    """Trial id → (status, reason) in the table of trials."""
    text = page(daemon, f"/experiments/{id_}/trials?limit=1000")
    rows = re.findall(r"<tr data-trial=.*?>(.*?)</tr>", text, re.DOTALL)
    return {_first(row, r'<td class="col-id"><code>(.*?)</code>'): _status(row) for row in rows}


def nnictl(daemon: Daemon, *words: str) -> str:
    """Output of a command that must succeed."""
    command = [str(Path(sys.executable).with_name("nnictl")), *words, "--data-dir", str(daemon.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def notes(path: Path) -> list[Json]:
    """Notes of the tuner of `trials/listed_tuner.py`, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _status(row: str) -> tuple[str, str]:
    return _first(row, r'<span class="badge [a-z_]+">(.*?)</span>'), _first(row, r'<div class="why">(.*?)</div>')


def _first(text: str, pattern: str) -> str:
    """Visible text of the first match; empty: no match."""
    found = re.search(pattern, text, re.DOTALL)
    return html.unescape(found[1]) if found else ""
