"""Determines without a daemon whether all experiments of a data directory are closed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from nni_manager.client import daemon
from nni_manager.domain.errors import StoreError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.connection import connect_readonly
from nni_manager.store.index import index


def are_all_at_rest(data_directory: Path) -> bool:
    """Whether no daemon runs for a data directory, and all experiments in it are closed."""
    return not daemon.is_running(data_directory) and are_all_closed(data_directory)


def are_all_closed(data_directory: Path) -> bool:
    """Whether all experiments are closed; False if unknown, for example with an unlisted folder. Blocks."""
    try:
        with closing(connect_readonly(data_directory / index.FILE)) as connection:
            known = index.statuses(connection)
    except (StoreError, sqlite3.Error, ValueError):
        return False
    folders = (database.parent for database in data_directory.glob("*/db"))
    there = {folder.name for folder in folders if not folder.is_symlink()}  # NNI has a link `_latest`
    return there <= known.keys() and set(known.values()) <= {ExperimentStatus.STOPPED}
