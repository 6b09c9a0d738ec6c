"""Rows about trial runners: who they are, and their words about the ends of attempts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nni_manager.domain.errors import AttemptDecided, NotFound
from nni_manager.domain.evidence import with_possible_times
from nni_manager.store.experiment import jobs
from trial_runner.wire.outbox_name import file_of, newest_name

#: Identities of containers that are kept of an attempt.
_MOST_CONTAINERS = 100


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
    #: The training service that its job went to.
    service: str
    #: Identity of its newest container; empty: none has one.
    container: str = ""
    #: The attempt is fenced off: logs alone are taken.
    is_decided: bool = False
    #: Bytes stored of each outbox.
    outboxes: Mapping[str, int] = field(default_factory=dict)


def find(connection: sqlite3.Connection, trial_id: str, attempt: int) -> RunnerSide:
    """Raises NotFound."""
    row = connection.execute(
        "SELECT a.job_name, t.record, t.asked <> '' OR e.status = 'STOPPING', a.runner_version,"
        " a.intended_ms, a.service, a.closed, json_extract(a.containers, '$[#-1]')"
        " FROM attempts a JOIN trials t ON t.id = a.trial_id, experiment e WHERE a.trial_id = ? AND a.number = ?",
        (trial_id, attempt),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no attempt {attempt} of trial {trial_id}")
    return RunnerSide(
        job_name=row[0],
        record=row[1],
        must_stop=bool(row[2]),
        runner_version=row[3],
        intended_ms=row[4],
        service=row[5],
        container=row[7] or "",
        is_decided=bool(row[6]),
        outboxes=jobs.offsets(connection, row[0]),
    )


def admit(
    connection: sqlite3.Connection,
    trial_id: str,
    attempt: int,
    *,
    version: str,
    channel: str,
    container: str,
    outboxes: Mapping[str, int] | None,
) -> RunnerSide:
    """As `greet`, of an attempt that is looked up in the same transaction; answers it. Raises NotFound, too.

    One that is decided stays as it is.
    """
    side = find(connection, trial_id, attempt)
    if side.is_decided:
        return side
    stored = greet(connection, side.job_name, version=version, channel=channel, container=container, outboxes=outboxes)
    return replace(side, outboxes=stored)


def greet(
    connection: sqlite3.Connection,
    job_name: str,
    *,
    version: str,
    channel: str,
    container: str = "",
    outboxes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The runner's first word. Answers the bytes stored of each outbox. Raises AttemptDecided for a container after
    which another one has greeted.

    `outboxes`: bytes of each that a container found when it started; None: not told.
    """
    if container:
        _take_over(connection, job_name, container, outboxes)
    connection.execute(
        "UPDATE attempts SET runner_version = ?, channel = ? WHERE job_name = ? AND closed = 0",
        (version, channel, job_name),
    )
    return jobs.offsets(connection, job_name)


def _take_over(
    connection: sqlite3.Connection, job_name: str, container: str, outboxes: Mapping[str, int] | None
) -> None:
    """The newest container greeted is the one that counts; what an earlier one said of the end is void."""
    row = connection.execute(
        "SELECT containers FROM attempts WHERE job_name = ? AND closed = 0", (job_name,)
    ).fetchone()
    known: list[str] = [] if row is None else json.loads(row[0])
    if row is None or container in known[-1:]:
        return
    if container in known:
        raise AttemptDecided(SUPERSEDED)
    connection.execute(
        "UPDATE attempts SET containers = ?, runner_exit = NULL, runner_exit_ms = NULL WHERE job_name = ?",
        (json.dumps([*known, container][-_MOST_CONTAINERS:]), job_name),
    )
    if known and outboxes is not None:
        _begin_afresh(connection, job_name, outboxes)


#: What a container hears after which another one has greeted.
SUPERSEDED = "a newer container of this attempt has greeted; nothing more is taken from this one"


def _begin_afresh(connection: sqlite3.Connection, job_name: str, found: Mapping[str, int]) -> None:
    """Outboxes of which the newcomer has less than is stored are other files: their offsets begin at 0 again.

    What was stored of them is kept; it is of an earlier epoch.
    """
    stored = jobs.offsets(connection, job_name)
    fresh = [name for name in stored if _has_less(file_of(name, stored), stored, found)]
    if not fresh:
        return
    connection.execute("UPDATE attempts SET epoch = epoch + 1 WHERE job_name = ?", (job_name,))
    connection.executemany(
        "UPDATE outboxes SET base = offset, base_lines = lines WHERE name = ? AND (trial_id, attempt) ="
        " (SELECT trial_id, number FROM attempts WHERE job_name = ?)",
        [(name, job_name) for name in fresh],
    )


def _has_less(file: str, stored: Mapping[str, int], found: Mapping[str, int]) -> bool:
    return found.get(file, 0) < stored[newest_name(file, stored)]


def set_exit(connection: sqlite3.Connection, job_name: str, word: str, now_ms: int) -> None:
    """The command has ended; the first word counts. `word`: JSON as the runner said it, by its own clock."""
    row = connection.execute(
        "SELECT intended_ms, json_extract(containers, '$[#-1]') FROM attempts"
        " WHERE job_name = ? AND closed = 0 AND runner_exit IS NULL",
        (job_name,),
    ).fetchone()
    said_by = json.loads(word).get("container")
    if row is not None and (not said_by or row[1] in (None, said_by)):
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


def missing(connection: sqlite3.Connection, job_name: str, outboxes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Outboxes of which less is stored than the runner says it has written → (bytes stored, bytes written)."""
    stored = jobs.offsets(connection, job_name)
    return {name: (stored.get(name, 0), size) for name, size in outboxes.items() if stored.get(name, 0) < size}
