"""Labels of an experiment, open or closed, and the name of a closed one."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from nni_manager.config import experiment_file
from nni_manager.scheduler.experiments import experiment_folder
from nni_manager.store import stored_config
from nni_manager.store.connection import classified
from nni_manager.store.experiment import experiments
from nni_manager.store.folder import Folder
from nni_manager.store.index import index, labels_file
from nni_manager.store.migrate import migrate

if TYPE_CHECKING:
    from nni_manager.scheduler.experiments.supervisor import Supervisor


async def change(supervisor: Supervisor, id: str, fields: Mapping[str, object]) -> None:
    """Changes ``notes``, ``tags``, ``archived``, as far as they are given; the folder first, which the index can be
    made from. Raises NotFound, InvalidInput or StoreUnavailable."""
    async with supervisor.turn(id):
        entry = await supervisor.closed_ones.entry(id)
        labels = entry.labels.changed(fields)
        if labels != entry.labels:
            await asyncio.to_thread(labels_file.write, entry.folder.path, labels)
            await supervisor.write(lambda c: index.set_labels(c, id, labels))
            supervisor.show_change(id)


async def rename_closed(supervisor: Supervisor, id: str, name: object) -> None:
    """Gives a closed experiment another name; None: none. Raises NotFound, InvalidInput, AlreadyOwned or StoreError."""
    async with supervisor.turn(id):
        entry = await supervisor.closed_ones.entry(id)
        await supervisor.closed_ones.release(id)
        found, platform = await asyncio.to_thread(_rename, entry.folder, name)
        await supervisor.write(lambda c: index.set_config(c, id, found, platform))


def _rename(folder: Folder, name: object) -> tuple[str | None, str]:
    """The name and the platform as the config has them now."""
    folder.require_database()
    lock = experiment_folder.own(folder)
    try:
        experiment_folder.adopt(folder)
        migrate(folder.database, "experiment")
        with closing(sqlite3.connect(folder.database, timeout=1)) as connection, connection:
            before = experiment_file.from_canonical(json.loads(experiments.load(connection).config))
            spec = experiment_file.change(before, {"experimentName": name})
            experiments.set_config(connection, json.dumps(spec.canonical))
            return spec.name, stored_config.platform(spec.canonical)
    except sqlite3.DatabaseError as error:
        raise classified(folder.database, error) from error
    finally:
        lock.release()
