"""An index whose data directory was moved or copied: what lay below the old place is below the new one."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.connection import Connection, connect

log = logging.getLogger(__name__)


def follow(path: Path) -> None:
    """Notes where the index is; after a move or a copy, puts right where experiments are. Blocks."""
    here = os.path.realpath(path.parent)
    with closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT directory FROM home").fetchone()
        if row is not None and row[0] != here:
            _move(connection, row[0], path.parent)
        connection.execute("DELETE FROM home")
        connection.execute("INSERT INTO home (directory) VALUES (?)", (here,))
        connection.execute("COMMIT")


def _move(connection: Connection, before: str, now: Path) -> None:
    log.warning("this data directory was %s: experiments that lay there are looked for in %s", before, now)
    for id_, folder in connection.execute("SELECT id, folder FROM experiments").fetchall():
        old, new = Path(folder), now / Path(folder).name
        if _lay_in(old, before) and new.is_dir():
            connection.execute("UPDATE experiments SET folder = ? WHERE id = ?", (str(new), id_))
            if old.exists():  # a copy must not begin to work because it lies there
                _close(connection, id_)
    for id_, folder in connection.execute("SELECT id, folder FROM leftovers").fetchall():
        if _lay_in(Path(folder), before):
            connection.execute("UPDATE leftovers SET folder = ? WHERE id = ?", (str(now / Path(folder).name), id_))


def _lay_in(folder: Path, directory: str) -> bool:
    return os.path.realpath(folder.parent) == directory


def _close(connection: Connection, id_: str) -> None:
    connection.execute(
        "UPDATE experiments SET status = ?, open = 0, view_port = NULL, view_prefix = NULL WHERE id = ?",
        (ExperimentStatus.STOPPED, id_),
    )
