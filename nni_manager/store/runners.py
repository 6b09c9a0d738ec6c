"""What trial runners say of their attempts, as rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nni_manager.domain.errors import AttemptDecided, NotFound
from nni_manager.domain.evidence import with_possible_times
from nni_manager.store import jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSide:
    """An attempt as its runner may see it."""

    job_name: str
    #: The parameter record the trial reads, JSON.
    record: str
    #: Somebody asked the trial, or the whole experiment, to end.
    must_stop: bool
    #: Empty until the runner's first post.
    runner_version: str
    #: When it was decided on, milliseconds since the epoch: before anything of it can have happened.
    intended_ms: int


def find(connection: sqlite3.Connection, trial_id: str, attempt: int, *, decided_too: bool = False) -> RunnerSide:
    """Raises NotFound, or AttemptDecided when the attempt is fenced off, unless that makes no difference."""
    row = connection.execute(
        "SELECT a.job_name, t.record, t.asked <> '' OR e.status = 'STOPPING', a.runner_version,"
        " a.intended_ms, a.closed"
        " FROM attempts a JOIN trials t ON t.id = a.trial_id, experiment e WHERE a.trial_id = ? AND a.number = ?",
        (trial_id, attempt),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no attempt {attempt} of trial {trial_id}")
    if row[5] and not decided_too:
        raise AttemptDecided(f"attempt {attempt} of trial {trial_id} is decided; nothing more is taken from it")
    return RunnerSide(job_name=row[0], record=row[1], must_stop=bool(row[2]), runner_version=row[3], intended_ms=row[4])


def greet(connection: sqlite3.Connection, job_name: str, *, version: str, channel: str) -> None:
    """The runner's first word."""
    connection.execute(
        "UPDATE attempts SET runner_version = ?, channel = ? WHERE job_name = ? AND closed = 0",
        (version, channel, job_name),
    )


def set_exit(connection: sqlite3.Connection, job_name: str, word: str, now_ms: int) -> None:
    """The command has ended; the first word counts. `word`: JSON as the runner said it, by its own clock."""
    row = connection.execute(
        "SELECT intended_ms FROM attempts WHERE job_name = ? AND closed = 0 AND runner_exit IS NULL", (job_name,)
    ).fetchone()
    if row is not None:
        connection.execute(
            "UPDATE attempts SET runner_exit = ?, runner_exit_ms = ? WHERE job_name = ?",
            (with_possible_times(word, row[0], now_ms), now_ms, job_name),
        )


def of_trials(connection: sqlite3.Connection, trial_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Id → (version, channel) of the runner of each trial's current attempt; only those that have one."""
    marks = ", ".join("?" * len(trial_ids))
    rows = connection.execute(
        "SELECT t.id, a.runner_version, a.channel FROM trials t JOIN attempts a ON a.trial_id = t.id"
        f" AND a.number = t.attempt WHERE a.runner_version <> '' AND t.id IN ({marks})",
        tuple(trial_ids),
    )
    return {id_: (version, channel) for id_, version, channel in rows}


def is_drained(connection: sqlite3.Connection, job_name: str, outboxes: Mapping[str, int]) -> bool:
    """Whether all that the runner says it has written is stored."""
    stored = jobs.offsets(connection, job_name)
    return all(stored.get(name, 0) >= size for name, size in outboxes.items())
