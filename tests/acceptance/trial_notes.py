"""Compares the notes of trials (`trials/noting_trial.py`) with the stored results."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.live_daemon import PYTHON, Daemon, picked

Entry = dict[str, Any]


def config(
    *, trials: int, steps: int, pause_s: float, tuner: dict[str, Any], spread_s: float = 0, **more: Any
) -> dict[str, Any]:
    """An experiment with eight concurrent noting trials. `spread_s`: range of the trials' pauses, in seconds."""
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{PYTHON} noting_trial.py {steps} {pause_s} {spread_s}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 8,
        "maxTrialNumber": trials,
        "tuner": tuner,
        "trainingService": {"platform": "local"},
        **more,
    }


def noting_tuner(folder: Path) -> dict[str, Any]:
    """A custom tuner that logs every call of each of its processes in `folder`."""
    return {"className": "note_tuner.NoteTuner", "codeDirectory": ".", "classArgs": {"folder": str(folder)}}


def read(path: Path) -> list[Entry]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_results(daemon: Daemon, id_: str, notes: Path) -> None:
    """Check that every attempt ran once, and that exactly the results of each final attempt are stored, in order."""
    entries = read(notes)
    starts = Counter(entry["attempt"] for entry in entries if entry["event"] == "started")
    assert set(starts.values()) == {1}, "an attempt ran twice"
    given = {entry["attempt"]: entry["x"] for entry in entries if entry["event"] == "started"}
    attempts = {_named(*attempt) for attempt in picked(daemon.attempts(id_), "trialId", "number")}
    assert set(starts) <= attempts, "a job without an attempt"
    stored: dict[str, list[Any]] = {}
    for trial, number, result in picked(daemon.results(id_), "trialId", "attempt", "result"):
        stored.setdefault(_named(trial, number), []).append(json.loads(result))
    for trial in daemon.trials(id_):
        attempt, x = _named(trial["id"], trial["attempt"]), trial["parameters"]["x"]
        assert given[attempt] == x
        assert json.loads(trial["finalResult"]) == x * 2
        assert stored[attempt] == [e["value"] for e in entries if e["attempt"] == attempt and "value" in e]


def _named(trial: str, number: int) -> str:
    """An attempt, from its process's environment."""
    return f"{trial}-{number}" if number > 1 else trial


def check_tuners(folder: Path, finals: int) -> None:
    """Check that no process got a result twice, and that the last one gets all, soon after the end."""
    deadline = time.monotonic() + 15
    while (most := max(len(read(path)) for path in folder.glob("*.jsonl"))) < finals and time.monotonic() < deadline:
        time.sleep(0.05)
    assert most == finals, "the last tuner did not get every result"
    hosts = {path: read(path) for path in folder.glob("*.jsonl")}
    for path, notes in hosts.items():
        seen = Counter(note["x"] for note in notes)
        assert set(seen.values()) <= {1}, f"{path.name} got a result twice"
        assert all(note["value"] == note["x"] * 2 for note in notes)
