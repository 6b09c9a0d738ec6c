"""What a daemon that was killed had begun to make or to delete: the next one finishes it before it does anything else.

A note in the index says what is to go. It is there before anything is made and while anything is being deleted, and
goes last, so that this may be done any number of times.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from nni_manager.api import code
from nni_manager.store import index
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder

log = logging.getLogger(__name__)


async def clear(index_database: Database, data_directory: Path) -> None:
    """What cannot be removed now is left to the next start. Raises StoreError when the index cannot be read."""
    for id_, folder in await index_database.read(index.leftovers):
        try:
            await _clear(index_database, data_directory, id_, folder)
        except Exception as error:  # whatever it is, it must not keep all other experiments waiting
            log.warning("%s, half made or half deleted, cannot be removed yet: %s", folder.path, error)


async def _clear(index_database: Database, data_directory: Path, id_: str, folder: Folder) -> None:
    findings = await asyncio.to_thread(folder.remove)
    await code.release(data_directory, id_)
    for finding in findings:
        log.warning("of an experiment that is deleted: %s", finding)
    if not findings:
        await index_database.try_write(lambda c: index.drop_leftover(c, id_))
        log.info("%s was half made or half deleted, and is gone now", folder.path, extra={"action": "leftover"})
