"""Moves the clock of a scripted cluster by editing its job files, so that a test controls when events happen.

The daemon reads the files again within five seconds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.waiting import until

Entry = dict[str, Any]

#: Longer than any test: `for` and `after` of an outage that the test starts and ends.
FAR_S = 100_000


class ScriptedCluster:
    """`folder`: of the experiment. Methods expect submitted jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "scripted"

    def wait_for_jobs(self, count: int, attempt: int | None = None) -> None:
        """`attempt`: needed from the second on, because jobs of earlier attempts may still exist."""
        until(lambda: len(list(self._jobs(f"*-{attempt}" if attempt else "*"))) == count, within_s=40)

    def wait_for_cancels(self) -> None:
        """Wait until every job was asked to stop."""
        until(lambda: all(_read(path)["cancelled_ms"] is not None for path in self._jobs()), within_s=40)

    def advance(self, seconds: float) -> None:
        """Move the submission of all jobs back by this time."""

        def move(job: Entry) -> None:
            job["submitted_ms"] -= round(seconds * 1000)

        self._change_jobs(move)

    def end_jobs(self, sequence_id: int | None = None) -> None:
        """End jobs a second after their start; with a rule for one trial, only that job."""

        def end(job: Entry) -> None:
            if sequence_id in (None, job["rule"].get("match", {}).get("sequence")):
                job["rule"]["duration"] = 1.0

        self._change_jobs(end)

    def begin_outage(self) -> None:
        self._begin_before(FAR_S)

    def end_outage(self) -> None:
        self._begin_before(2 * FAR_S)

    def _begin_before(self, seconds: float) -> None:
        """Move the cluster's first use back by this time."""
        _write(self._folder / "cluster.json", {"begunMs": round((time.time() - seconds) * 1000)})

    def _jobs(self, names: str = "*") -> Iterator[Path]:
        return self._folder.glob(f"{names}/job.json")

    def _change_jobs(self, change: Callable[[Entry], None]) -> None:
        for path in self._jobs():
            job = _read(path)
            change(job)
            _write(path, job)


def _read(path: Path) -> Entry:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def _write(path: Path, entry: Entry) -> None:
    """Write a file atomically."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(entry))
    os.replace(draft, path)
