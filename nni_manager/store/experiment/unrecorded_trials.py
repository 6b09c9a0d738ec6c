"""Trials with a folder but without a row: the database was restored from an older copy.

Their numbers are not reused, and a warning names them.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nni_manager.domain.experiment import ExperimentWarning
from nni_manager.domain.ids import TRIAL_ID

#: Folder of an attempt, or of a trial's checkpoints.
_FOLDER = re.compile(rf"({TRIAL_ID.pattern})(?:-\w+)?")
#: Maximum number of ids in the warning.
_NAMED = 10


def note(connection: sqlite3.Connection, trials: Path) -> tuple[str, ...]:
    """Stores the trials that have only a folder, and skips their numbers. Returns the new ids. Blocks."""
    rows = connection.execute("SELECT id FROM trials UNION ALL SELECT id FROM unrecorded_trials")
    new = sorted(_ids_on_disk(trials) - {id_ for (id_,) in rows})
    if new:
        connection.executemany("INSERT INTO unrecorded_trials (id) VALUES (?)", [(id_,) for id_ in new])
        connection.execute(
            "UPDATE experiment SET next_sequence_id = next_sequence_id + :count,"
            " next_parameter_id = next_parameter_id + :count",
            {"count": len(new)},
        )
    return tuple(new)


def _ids_on_disk(trials: Path) -> set[str]:
    with suppress(OSError), os.scandir(trials) as items:
        return {found[1] for item in items if (found := _FOLDER.fullmatch(item.name)) and item.is_dir()}
    return set()


def warnings(connection: sqlite3.Connection) -> Iterator[ExperimentWarning]:
    """The warning that names them; None: there are none."""
    ids = [id_ for (id_,) in connection.execute("SELECT id FROM unrecorded_trials ORDER BY id")]
    if ids:
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        message = (
            f"the database is older than {len(ids)} of its trials: {', '.join(ids[:_NAMED])}{more}. Their results"
            " are not counted; their files are in their folders below trials. Restore a newer copy of the"
            " database, if you have one"
        )
        yield ExperimentWarning(code="UNRECORDED_TRIALS", message=message)
