"""Compares the notes that trials of `trials/noting_trial.py` wrote themselves with what the manager stored."""

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
    """An experiment of noting trials, eight at a time. `spread_s`: range of the trials' pauses, in seconds."""
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
    """A user's tuner that logs in `folder` every call that each of its processes received."""
    return {"className": "note_tuner.NoteTuner", "codeDirectory": ".", "classArgs": {"folder": str(folder)}}


def read(path: Path) -> list[Entry]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_results(daemon: Daemon, id_: str, notes: Path) -> None:
    """Every attempt ran once; what the decided attempt of each trial wrote is stored once, in order, nothing else."""
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
    """An attempt, as its own process knows it."""
    return f"{trial}-{number}" if number > 1 else trial


def check_tuners(folder: Path, finals: int) -> None:
    """No process was told a result twice, and the last one knows them all, at least a moment after the end."""
    deadline = time.monotonic() + 15
    while (most := max(len(read(path)) for path in folder.glob("*.jsonl"))) < finals and time.monotonic() < deadline:
        time.sleep(0.05)
    assert most == finals, "the last tuner was not told every result"
    hosts = {path: read(path) for path in folder.glob("*.jsonl")}
    for path, notes in hosts.items():
        seen = Counter(note["x"] for note in notes)
        assert set(seen.values()) <= {1}, f"{path.name} was told a result twice"
        assert all(note["value"] == note["x"] * 2 for note in notes)
