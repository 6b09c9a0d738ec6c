"""The list of all experiments of a data directory. It can be rebuilt from the folders at any time."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import NotFound, StoreCorrupt, StoreError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.ids import EXPERIMENT_ID
from nni_manager.domain.text import is_visible
from nni_manager.store import stored_config
from nni_manager.store.connection import classified, connect_readonly
from nni_manager.store.folder import Folder
from nni_manager.store.index import list_summary
from nni_manager.store.index.labels import Labels, read_labels
from nni_manager.store.migrate import require_ours
from nni_manager.store.nni import nni_folder

log = logging.getLogger(__name__)

#: The column's value for an experiment without labels.
_NO_LABELS = "{}"
#: File name in the data directory.
FILE = "index.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    id: str
    folder: Folder
    name: str | None
    #: Platform names, joined by commas.
    platform: str
    status: ExperimentStatus
    created_ms: int
    ended_ms: int | None
    #: A starting daemon must open it.
    is_open: bool
    #: None: it has none. A starting daemon restores it.
    endpoint: Endpoint | None = None
    #: When it was last created, resumed or viewed; None: as `created_ms`.
    launched_ms: int | None = None
    #: Displayed results of a closed experiment, from `list_summary`; empty: unknown.
    results: str = ""
    labels: Labels = field(default_factory=Labels)
    #: Its folder was found in the data directory; until it is resumed.
    is_found: bool = False
    #: Why its database is unreadable: a sentence; empty: it is readable.
    note: str = ""

    @property
    def trouble(self) -> str:
        """What the user should know before resuming it: a sentence; empty: nothing."""
        if self.is_found and not self.note:
            return f"found in {self.folder.path}, not known before; continue it with `nnictl resume {self.id}`"
        return self.note

    @property
    def title(self) -> str:
        """Its display name: its name, or its id if that is empty."""
        return self.name if self.name and is_visible(self.name) else self.id


_COLUMNS = (
    "id, folder, name, platform, status, created_ms, ended_ms, open, view_port, view_prefix, launched_ms, results,"
    " labels, found, note"
)


def put(connection: sqlite3.Connection, entry: Entry) -> None:
    """Adds or replaces an entry, and removes its leftover note. Results of an open experiment are not stored, as they
    change."""
    drop_leftover(connection, entry.id)
    connection.execute(
        f"INSERT OR REPLACE INTO experiments ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.id,
            str(entry.folder.path),
            entry.name,
            entry.platform,
            entry.status,
            entry.created_ms,
            entry.ended_ms,
            entry.is_open,
            *_endpoint_columns(entry.endpoint),
            entry.launched_ms,
            "" if entry.is_open else entry.results,
            _labels_text(entry.labels),
            entry.is_found,
            entry.note,
        ),
    )


def set_status(
    connection: sqlite3.Connection,
    id: str,
    status: ExperimentStatus,
    ended_ms: int | None,
    *,
    is_open: bool,
    results: str = "",
) -> None:
    """Stores an experiment's status; STOPPED clears its endpoint. `results`: empty keeps the stored ones."""
    connection.execute(
        "UPDATE experiments SET status = :status, ended_ms = :ended_ms, open = :is_open,"
        " view_port = CASE WHEN :is_stopped THEN NULL ELSE view_port END,"
        " view_prefix = CASE WHEN :is_stopped THEN NULL ELSE view_prefix END,"
        " results = CASE WHEN :results = '' THEN results ELSE :results END WHERE id = :id",
        {
            "status": status,
            "ended_ms": ended_ms,
            "is_open": is_open,
            "is_stopped": status is ExperimentStatus.STOPPED,
            "id": id,
            "results": results,
        },
    )


def set_endpoint(connection: sqlite3.Connection, id: str, endpoint: Endpoint | None) -> None:
    connection.execute(
        "UPDATE experiments SET view_port = ?, view_prefix = ? WHERE id = ?", (*_endpoint_columns(endpoint), id)
    )


def set_config(connection: sqlite3.Connection, id: str, name: str | None, platform: str) -> None:
    """Stores the config fields that lists show."""
    connection.execute("UPDATE experiments SET name = ?, platform = ? WHERE id = ?", (name, platform, id))


def set_labels(connection: sqlite3.Connection, id: str, labels: Labels) -> None:
    connection.execute("UPDATE experiments SET labels = ? WHERE id = ?", (_labels_text(labels), id))


def remove(connection: sqlite3.Connection, id: str) -> None:
    connection.execute("DELETE FROM experiments WHERE id = ?", (id,))


def set_leftover(connection: sqlite3.Connection, id: str, folder: Folder) -> None:
    """Notes a folder for removal by the next daemon, unless it is listed before."""
    remove(connection, id)
    connection.execute("INSERT OR REPLACE INTO leftovers (id, folder) VALUES (?, ?)", (id, str(folder.path)))


def drop_leftover(connection: sqlite3.Connection, id: str) -> None:
    """Removes the note of a folder."""
    connection.execute("DELETE FROM leftovers WHERE id = ?", (id,))


def leftovers(connection: sqlite3.Connection) -> list[tuple[str, Folder]]:
    """(id, folder) of experiments that a killed daemon had started to create or delete."""
    rows = connection.execute("SELECT id, folder FROM leftovers ORDER BY id")
    return [(id_, Folder(Path(str(folder)))) for id_, folder in rows]


def get(connection: sqlite3.Connection, id: str) -> Entry:
    """The entry of an experiment. Raises NotFound."""
    entry = find(connection, id)
    if entry is None:
        raise NotFound(f"cannot find experiment {id}, or it was deleted; `nnictl experiment list` shows all")
    return entry


def find(connection: sqlite3.Connection, id: str) -> Entry | None:
    """The entry of an experiment; None: unknown."""
    query = f"SELECT {_COLUMNS} FROM experiments WHERE id = ?"
    row = connection.execute(query, (id,)).fetchone()
    return None if row is None else _entry(row)


def all_entries(connection: sqlite3.Connection) -> list[Entry]:
    """The entries of all experiments, oldest first."""
    query = f"SELECT {_COLUMNS} FROM experiments ORDER BY created_ms, id"
    return [_entry(row) for row in connection.execute(query)]


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Number of experiments by status, without zeros."""
    return dict(connection.execute("SELECT status, count(*) FROM experiments GROUP BY status").fetchall())


def statuses(connection: sqlite3.Connection) -> dict[str, ExperimentStatus]:
    """The statuses of all experiments, by id."""
    rows = connection.execute("SELECT id, status FROM experiments").fetchall()
    return {str(id_): ExperimentStatus(status) for id_, status in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An experiment's folder as found on the disk."""

    entry: Entry
    #: The folder in its database; it differs after a move or a copy.
    stored: Folder
    #: Identity of the data directory whose daemon opened it last; empty: unknown.
    owner: str = ""
    #: Last time that the database counted, in milliseconds; 0: unknown.
    counted_ms: int = 0

    @property
    def is_copy(self) -> bool:
        """Whether the database names another folder that still contains a database."""
        with suppress(OSError, StoreCorrupt):
            return self.stored.database.exists() and not os.path.samefile(self.stored.path, self.entry.folder.path)
        return False


def find_folders(data_directory: Path) -> list[Entry]:
    """An entry for every experiment folder in the data directory, including unreadable ones. A copy whose original
    exists is closed, as the original may be running."""
    found = filter(None, map(find_folder, folders_in(data_directory)))
    return [_as_copy(one.entry, one.stored) if one.is_copy else one.entry for one in found]


def folders_in(data_directory: Path) -> list[Folder]:
    """The folders in the data directory that look like those of experiments, ours or NNI's."""
    paths = sorted(path.parent for path in data_directory.glob("*/db"))
    return [Folder(path) for path in paths if not is_second_name(path)]


def find_folder(folder: Folder, *, with_results: bool = True) -> Found | None:
    """The experiment in a folder, even if its database is unreadable; None: the folder contains no experiment."""
    try:
        return read_found(folder, with_results=with_results)
    except Exception as error:
        log.warning("%s looks like an experiment folder but cannot be read: %s", folder.path, error)
        if not holds_experiment(folder) or not EXPERIMENT_ID.fullmatch(folder.path.name):
            return None
        return Found(entry=_unreadable(folder, str(error)), stored=folder)


def holds_experiment(folder: Folder) -> bool:
    """Whether removing the folder could lose data: it has trials, or an unreadable database. An experiment whose
    creation was interrupted has neither."""
    with suppress(FileNotFoundError, NotADirectoryError):
        with os.scandir(folder.trials) as trials:
            if any(trials):
                return True
    try:
        database = folder.database
        if not database.exists() or database.stat().st_size == 0:
            return False
        with closing(connect_readonly(database)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "trials" not in tables:
                return bool(tables)
            return connection.execute("SELECT 1 FROM trials").fetchone() is not None
    except (OSError, StoreError, sqlite3.DatabaseError):
        return True


def _unreadable(folder: Folder, why: str) -> Entry:
    """The entry of an experiment with an unreadable database."""
    return Entry(
        id=folder.path.name,
        folder=folder,
        name=None,
        platform="",
        status=ExperimentStatus.STOPPED,
        created_ms=int(folder.path.stat().st_mtime * 1000),
        ended_ms=None,
        is_open=False,
        note=f"its folder {folder.path} cannot be read: {why}",
    )


def is_second_name(path: Path) -> bool:
    """Whether this is NNI's ``_latest``, a link to the newest folder next to it."""
    return path.is_symlink() and os.path.dirname(os.path.realpath(path)) == os.path.realpath(path.parent)


def _as_copy(entry: Entry, original: Folder) -> Entry:
    log.warning("%s is a copy of %s and is listed as stopped", entry.folder.path, original.path)
    return replace(entry, status=ExperimentStatus.STOPPED, is_open=False, endpoint=None)


def read_folder(folder: Folder) -> Entry:
    """An entry created from the folder alone. Raises NotFound or StoreError."""
    return read_found(folder).entry


#: First schema in which experiments name their owner.
_WITH_OWNER = 7


def read_found(folder: Folder, *, with_results: bool = True) -> Found:
    """The experiment in a folder. `with_results`: with the displayed results. Raises NotFound or StoreError."""
    folder.require_database()
    nni_folder.roll_back(folder.database)
    connection = connect_readonly(folder.database)
    try:
        require_ours(connection, folder.database)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        owner = "owner" if version >= _WITH_OWNER else "''"
        query = (
            "SELECT id, status, config, created_ms, ended_ms, view_port, view_prefix, folder, counted_ms,"
            f" {owner} FROM experiment"
        )
        row = connection.execute(query).fetchone()
        results = _recorded_results(connection) if row is not None and with_results else ""
    except sqlite3.DatabaseError as error:
        if "no such table" not in str(error):
            raise classified(folder.database, error) from error
        connection.close()  # NNI's folder is opened differently
        return Found(entry=_read_nni_folder(folder), stored=folder)
    finally:
        connection.close()
    if row is None:
        raise StoreCorrupt(f"the database {folder.database} contains no experiment; its creation was interrupted")
    id_, status, text, created, ended, port, prefix, stored, counted_ms, owner = row
    config = stored_config.read(text, folder.database)
    is_open = not ExperimentStatus(status).is_closed
    entry = Entry(
        id=id_,
        folder=folder,
        name=config.get("experimentName"),
        platform=stored_config.platform(config),
        status=ExperimentStatus(status),
        created_ms=created,
        ended_ms=ended,
        is_open=is_open,
        endpoint=_endpoint(port, prefix) if is_open else None,
        results=results,
        labels=read_labels(folder.path),
    )
    return Found(entry=entry, stored=Folder(Path(str(stored))), owner=owner, counted_ms=counted_ms)


def _read_nni_folder(folder: Folder) -> Entry:
    """An entry for a folder that NNI created, which is converted on first opening. Raises StoreError."""
    if not nni_folder.is_made_by_nni(folder.database):
        raise StoreCorrupt(f"the database {folder.database} contains no experiment of this program or of NNI")
    head = nni_folder.read_head(folder.database)
    results = nni_folder.read_results(folder.database) if head.ended_ms is not None else ""
    return Entry(
        id=head.id,
        folder=folder,
        name=head.name,
        platform=head.platform,
        status=ExperimentStatus.STOPPED,
        created_ms=head.created_ms,
        ended_ms=head.ended_ms,
        is_open=False,
        results=results,
        labels=read_labels(folder.path),
    )


def _recorded_results(connection: sqlite3.Connection) -> str:
    """The displayed results, from the folder; empty: its config is unreadable."""
    try:
        return list_summary.text_of(connection)
    except (ValueError, KeyError):
        return ""


def _entry(row: tuple[Any, ...]) -> Entry:
    id_, folder, name, platform, status, created, ended, open_, port, prefix, launched, results, labels, found, note = (
        row
    )
    return Entry(
        id=id_,
        folder=Folder(Path(str(folder))),
        name=name,
        platform=platform,
        status=ExperimentStatus(status),
        created_ms=created,
        ended_ms=ended,
        is_open=bool(open_),
        endpoint=_endpoint(port, prefix),
        launched_ms=launched,
        results=results,
        labels=Labels() if labels == _NO_LABELS else Labels.parse(json.loads(labels)),
        is_found=bool(found),
        note=note,
    )


def _labels_text(labels: Labels) -> str:
    return _NO_LABELS if labels == Labels() else json.dumps(labels.as_json())


def _endpoint(port: int | None, prefix: str | None) -> Endpoint | None:
    return None if port is None else Endpoint(port=port, prefix=prefix or "")


def _endpoint_columns(endpoint: Endpoint | None) -> tuple[int | None, str | None]:
    return (None, None) if endpoint is None else (endpoint.port, endpoint.prefix)
