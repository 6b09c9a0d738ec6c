"""Trials' logs for TensorBoard, in ``$NNI_OUTPUT_DIR/tensorboard`` as in NNI; and folders of links to them, one for
each TensorBoard. Only what was created here is removed."""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nni_manager.domain.errors import NotFound
from nni_manager.domain.ids import attempt_directory
from nni_manager.shared_storage.shared_folder import OUTPUT_FOLDER
from nni_manager.shared_storage.storage_folders import experiment_folder
from nni_manager.store import stored_config
from nni_manager.store.experiment import experiments

_NAME = "tensorboard"
_LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLogs:
    """The folder of one trial's latest attempt."""

    trial_id: str
    number: int
    path: Path
    #: Whether it can be read on this machine, now or once the trial writes it.
    is_here: bool


def find_logs(connection: sqlite3.Connection, trials: Path, ids: Sequence[str]) -> list[TrialLogs]:
    """The folders of these trials, in their order. `trials`: the experiment's. Raises NotFound."""
    rows = {row[0]: row for row in connection.execute(_ROWS, (json.dumps(list(ids)),))}
    if missing := [id_ for id_ in ids if id_ not in rows]:
        raise NotFound(f"cannot find trial {missing[0]}")
    row = experiments.load(connection)
    config = json.loads(row.config)
    section = config.get("sharedStorage")
    point = section.get("localMountPoint") if isinstance(section, Mapping) else None
    # None: there is none, or it is not mounted here
    storage = Path(str(point), "nni", experiment_folder(row.id, row.storage_key), "trials") if point else None
    platforms = {name: str(section.get("platform", "")) for name, section in stored_config.services(config).items()}
    return [_logs(rows[id_], trials, storage, platforms) for id_ in dict.fromkeys(ids)]


def newest_trials(connection: sqlite3.Connection, count: int) -> list[str]:
    """Ids of the newest trials."""
    rows = connection.execute("SELECT id FROM trials ORDER BY sequence_id DESC LIMIT ?", (count,))
    return [id_ for (id_,) in rows]


_ROWS = (
    "SELECT t.id, t.sequence_id, t.attempt, a.service FROM trials t"
    " LEFT JOIN attempts a ON a.trial_id = t.id AND a.number = t.attempt"
    " WHERE t.id IN (SELECT value FROM json_each(?))"
)


def _logs(
    row: tuple[str, int, int, str | None], trials: Path, storage: Path | None, platforms: Mapping[str, str]
) -> TrialLogs:
    id_, number, attempt, service = row
    name = attempt_directory(id_, attempt)
    here = trials / name / _NAME
    stored = None if storage is None else storage / name / OUTPUT_FOLDER / _NAME
    for path in filter(None, (here, stored)):
        if os.path.isdir(path):
            return TrialLogs(trial_id=id_, number=number, path=path, is_here=True)
    only = next(iter(platforms.values())) if len(platforms) == 1 else ""  # for a trial without an attempt
    is_local = platforms.get(service or "", only) == _LOCAL
    return TrialLogs(trial_id=id_, number=number, path=stored or here, is_here=is_local)


#: Below the data directory, which may have been NNI's: a name that no experiment can have.
FOLDER = ".tensorboards"
_ID = re.compile(r"[0-9a-f]{6}")


def new_id() -> str:
    """A random id of a TensorBoard, the name of its folder."""
    return secrets.token_hex(3)


def make_links(folder: Path, logs: Sequence[TrialLogs]) -> None:
    """Creates a folder with a link to the logs of each trial, named by number and id. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True)
    for one in logs:
        (folder / f"{one.number}-{one.trial_id}").symlink_to(one.path)


def remove_links(folder: Path) -> None:
    """Removes a folder that contains only links; any other is not changed. Blocks."""
    with suppress(OSError):
        links = list(folder.iterdir())
        if folder.is_symlink() or not all(link.is_symlink() for link in links):
            return
        for link in links:
            link.unlink()
        folder.rmdir()


def clear_links(data_directory: Path) -> None:
    """Removes the folders that a killed daemon left. Blocks."""
    with suppress(OSError):
        for child in list((data_directory / FOLDER).iterdir()):
            if _ID.fullmatch(child.name):
                remove_links(child)
