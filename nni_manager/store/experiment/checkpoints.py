"""The checkpoints of trials that ended well, where not all are kept: noted at their ends, until they are removed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator

from nni_manager.domain.job import JobHandle
from nni_manager.domain.stored_state import NeedlessCheckpoint

#: Most that one turn is told of: each removal brings the next turn.
_AT_A_TIME = 64

#: A platform that has not forgotten a job may still have processes of it, which write. A trial that is to begin with a
#: checkpoint has copied it before it ends.
_NEEDLESS = """
SELECT trial_id FROM checkpoints AS c
WHERE trial_id NOT IN (SELECT value FROM json_each(:at_work))
    AND NOT EXISTS (
        SELECT 1 FROM attempts WHERE trial_id = c.trial_id AND handle IS NOT NULL
            AND (forgotten = 0 OR service IN (SELECT value FROM json_each(:away))))
    AND NOT EXISTS (SELECT 1 FROM trials WHERE end_order IS NULL AND continues = c.trial_id)
    AND trial_id NOT IN (
        SELECT id FROM trials JOIN checkpoints ON trial_id = id
        WHERE status = 'SUCCEEDED' AND coalesce(abs(final_value) < 1.8e308, 0)
        ORDER BY final_value * :sign DESC, sequence_id LIMIT :kept)
LIMIT :most
"""


def note(connection: sqlite3.Connection, trial_id: str) -> None:
    """Notes that a trial ended well and may have a checkpoint."""
    connection.execute("INSERT OR IGNORE INTO checkpoints (trial_id) VALUES (?)", (trial_id,))


def set_removed(connection: sqlite3.Connection, trial_ids: Iterable[str]) -> None:
    """Notes that the checkpoints of these trials are removed."""
    connection.executemany("DELETE FROM checkpoints WHERE trial_id = ?", [(id_,) for id_ in trial_ids])


def needless(
    connection: sqlite3.Connection,
    kept: int,
    *,
    maximize: bool,
    at_work: Collection[str] = (),
    away: Collection[str] = (),
) -> Iterator[NeedlessCheckpoint]:
    """Noted checkpoints that nothing needs. `kept`: number of the best trials whose checkpoints stay; `at_work`: trials
    that are left out; `away`: training services that cannot be asked, whose trials are left out."""
    values = {
        "kept": kept,
        "sign": 1 if maximize else -1,
        "most": _AT_A_TIME,
        "at_work": json.dumps([*at_work]),
        "away": json.dumps([*away]),
    }
    for (trial_id,) in connection.execute(_NEEDLESS, values).fetchall():
        yield NeedlessCheckpoint(trial_id, tuple(_jobs(connection, trial_id)))


def _jobs(connection: sqlite3.Connection, trial_id: str) -> Iterator[tuple[str, JobHandle]]:
    rows = connection.execute(
        "SELECT service, job_name, handle FROM attempts WHERE trial_id = ? AND handle IS NOT NULL", (trial_id,)
    )
    for service, job_name, handle in rows:
        yield service, JobHandle.parse(job_name, handle)
