"""Conversion of folders that NNI 2.x and 3.0 created: their three tables are copied into our schema.

The original database stays next to the new one. NNI's event log becomes one row per trial; trials that were running
when NNI ended wait for `resume`, as after a stop.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from nni_manager.domain.errors import Conflict, StoreCorrupt, StoreError, StoreUnavailable
from nni_manager.store import private
from nni_manager.store.connection import classifying, connect, connect_readonly
from nni_manager.store.folder import Folder
from nni_manager.store.index import list_summary
from nni_manager.store.migrate import lay_out, migrate
from nni_manager.store.nni import nni_history
from nni_manager.store.nni.nni_history import NniExperiment, NniHead, NniMetric, NniTrial
from nni_manager.store.private import Kept
from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import NotRegular

T = TypeVar("T")

#: The database as NNI left it.
ORIGINAL = "nni.sqlite.nni"
#: NNI 3.0's names of a trial's files → ours, which are those of 2.x.
_FILES = {"trial.stdout": "stdout", "trial.stderr": "stderr", "trial.log": "trial.log"}
#: Several requests may open the same experiment for the first time.
_one_at_a_time = threading.Lock()


def roll_back(database: Path) -> None:
    """Rolls back the unfinished transaction of a killed NNI, which blocks read-only connections. Ignored if there is
    none. Raises StoreError."""
    if not database.with_name(f"{database.name}-journal").exists():
        return
    with classifying(database), closing(sqlite3.connect(database, timeout=1)) as connection:
        # a writable connection rolls back when it reads
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def is_made_by_nni(database: Path) -> bool:
    """Whether a database has NNI's tables and not ours. Raises StoreError if it is unreadable."""
    with classifying(database), closing(connect_readonly(database)) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {"TrialJobEvent", "MetricData", "ExperimentProfile"} <= names and "experiment" not in names


def read_head(database: Path) -> NniHead:
    """The experiment's list entry. The end of a killed NNI is the last time it stored. Raises StoreError."""
    head = _read(database, nni_history.read_head)
    if head.ended_ms is None and _user(database) is None:
        return replace(head, ended_ms=_read(database, nni_history.last_moment))
    return head


def read_results(database: Path) -> str:
    """The displayed results, of the database that the folder will have after its conversion; empty: unreadable
    records. Raises StoreError."""
    try:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            lay_out(connection, "experiment")
            _write(connection, _read(database, nni_history.read), "", "")
            return list_summary.text_of(connection)
    except (ValueError, KeyError, TypeError, sqlite3.DatabaseError):
        return ""


def adopt(
    folder: Folder, *, environment: Mapping[str, str], interpreter: str, config: Callable[[str], str] = str
) -> None:
    """Converts the folder if NNI created it; ignores our own. Blocks. Raises as `take_over`, and StoreUnavailable for
    an unwritable folder."""
    try:
        with _one_at_a_time:
            if folder.database.exists():
                roll_back(folder.database)
                if is_made_by_nni(folder.database):
                    take_over(folder, environment=environment, interpreter=interpreter, config=config)
    except OSError as error:
        raise StoreUnavailable(
            f"{folder.path} was created by NNI and cannot be converted ({error.strerror}: {error.filename}); make it"
            " writable, or copy it"
        ) from error


def require_idle(folder: Folder) -> None:
    """Raises Conflict while an NNI process uses the folder; ignores our own. Blocks."""
    if folder.database.exists() and _may_be_nni_s(folder.database):
        _refuse_while_used(folder.database)


def take_over(
    folder: Folder, *, environment: Mapping[str, str], interpreter: str, config: Callable[[str], str] = str
) -> None:
    """Converts the folder; its trials will run with `environment` and `interpreter`. Blocks.

    `config`: text of the config as NNI stored it → as we do.

    Atomic, and repeatable after a crash. Raises Conflict while an NNI process uses it, StoreCorrupt if it contains no
    experiment.
    """
    database = folder.database
    _refuse_links(folder)
    _refuse_while_used(database)
    draft = database.with_name("nni.sqlite.draft")
    for ending in ("", "-wal", "-shm"):
        draft.with_name(draft.name + ending).unlink(missing_ok=True)
    experiment = _read(database, nni_history.read)
    experiment = replace(experiment, params=config(experiment.params))
    migrate(draft, "experiment")
    with closing(connect(draft)) as connection:
        _write(connection, experiment, str(folder.path), interpreter)
    private.replace(folder.private, Kept(environment=environment))
    _link_files(folder)
    for name in ("log", "trials", "checkpoint"):
        (folder.path / name).mkdir(mode=0o700, exist_ok=True)
    original = database.with_name(ORIGINAL)
    if not original.exists():
        os.link(database, original)
    draft.replace(database)


def _may_be_nni_s(database: Path) -> bool:
    """Whether NNI may have created a database; True for an unreadable one, as it may be being written."""
    try:
        return is_made_by_nni(database)
    except StoreError:
        return True


def _refuse_while_used(database: Path) -> None:
    if (user := _user(database)) is not None:
        raise Conflict(
            f"{database} is in use by {user}: stop that experiment with the nnictl that started it, then try again"
        )


def _user(database: Path) -> str | None:
    """The process that has a database open, as NNI uses no lock. None: none that this user can see."""
    import psutil

    path = os.path.realpath(database)
    for process in psutil.process_iter(["open_files", "name"]):
        if any(file.path == path for file in process.info["open_files"] or ()):
            return f"process {process.pid} ({process.info['name']})"
    return None


def _read(database: Path, read: Callable[[sqlite3.Connection], T | None]) -> T:
    with classifying(database), closing(connect_readonly(database)) as connection:
        found = read(connection)
    if found is None:
        raise StoreCorrupt(f"the database {database} contains no experiment; NNI had not started it")
    return found


def _write(connection: sqlite3.Connection, experiment: NniExperiment, folder: str, interpreter: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO experiment (id, status, config, interpreter, folder, created_ms, ended_ms, exec_ms, counted_ms,"
        " next_sequence_id, next_parameter_id, ended_trials, revision)"
        " VALUES (?, 'STOPPED', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            experiment.id,
            experiment.params,
            interpreter,
            folder,
            experiment.created_ms,
            experiment.ended_ms,
            experiment.exec_ms,
            experiment.ended_ms,
            experiment.next_sequence_id,
            experiment.next_parameter_id,
            len(experiment.trials),
            len(experiment.profiles),
        ),
    )
    connection.executemany("INSERT INTO ExperimentProfile VALUES (?, ?, ?, ?, ?, ?, ?, ?)", experiment.profiles)
    connection.executemany("INSERT INTO imports (stored_ms, data) VALUES (?, ?)", experiment.imports)
    for number, trial in enumerate(experiment.trials, 1):
        _write_trial(connection, trial, number)
        _write_metrics(connection, trial.id, number, trial.metrics)
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode=DELETE")  # no -wal or -shm next to the moved file


def _write_trial(connection: sqlite3.Connection, trial: NniTrial, end_order: int) -> None:
    final, last = trial.final, trial.last_intermediate
    connection.execute(
        "INSERT INTO trials (id, sequence_id, status, parameter_id, record, created_ms, started_ms, ended_ms, reason,"
        " message, intermediates, last_value, final_data, final_value, end_order)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            trial.id,
            trial.sequence_id,
            trial.status,
            trial.parameters.parameter_id,
            trial.parameters.record(),
            trial.created_ms,
            trial.started_ms,
            trial.ended_ms,
            trial.reason,
            trial.message,
            trial.intermediates,
            last and last.value,
            final and final.data,
            final and final.value,
            end_order,
        ),
    )


def _write_metrics(connection: sqlite3.Connection, trial_id: str, outbox: int, metrics: tuple[NniMetric, ...]) -> None:
    """Inserts metrics with NNI's row ids, which keeps their order across trials."""
    connection.execute(
        "INSERT INTO outboxes (id, trial_id, attempt, name, lines) VALUES (?, ?, 1, 'nni', ?)",
        (outbox, trial_id, len(metrics)),
    )
    connection.executemany(
        "INSERT INTO metrics (id, outbox, number, trial_id, attempt, type, sequence, stored_ms, data, value)"
        " VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
        [
            (m.id, outbox, number, trial_id, m.type, m.sequence, m.stored_ms, m.data, m.value)
            for number, m in enumerate(metrics)
        ],
    )


def _link_files(folder: Folder) -> None:
    """Links the files that NNI 3.0 keeps below ``environments`` into the attempts' folders."""
    root = folder.path / "environments"
    for directory in root.glob("*/trials/*"):
        foreign_files.make_folder(str(folder.path), f"{folder.trials.name}/{directory.name}")
        with foreign_files.opened_folder(str(folder.trials), directory.name) as target:
            for name, ours in _FILES.items():
                with suppress(FileNotFoundError, NotADirectoryError, NotRegular):  # a trial may lack some
                    _link(root, str((directory / name).relative_to(root)), target, ours)


def _link(root: Path, name: str, target: int, ours: str) -> None:
    """Links a regular file into the folder `target`. Symbolic links are not followed, as they may lead anywhere. Raises
    OSError."""
    with open(foreign_files.open_file(str(root), name), "rb") as source, suppress(FileExistsError):
        try:
            os.link(root / name, ours, dst_dir_fd=target, follow_symlinks=False)
        except OSError:  # it exists, or the file system has no hard links
            copy = os.open(ours, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
            with open(copy, "wb") as file:
                shutil.copyfileobj(source, file)


def _refuse_links(folder: Folder) -> None:
    """Raises Conflict if a folder that we write to is a link, as the files could end up anywhere."""
    for name in ("db", "log", "trials", "checkpoint"):
        if (folder.path / name).is_symlink():
            raise Conflict(
                f"{folder.path / name} is a link, which NNI does not create; replace it with its target folder"
            )
