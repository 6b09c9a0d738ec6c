"""Folders of deleted experiments that could not be removed completely: removal is retried until they are gone.

The note about such a folder stays in the index, so that the next daemon continues after a kill.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from nni_manager.platform_kit.tasks import ended
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Seconds between two attempts; the last value repeats.
_WAITS_S = (2.0, 5.0, 10.0, 30.0, 60.0)
#: Device and inode of a folder and of its database; None: it is gone.
_Identity = tuple[tuple[int, int] | None, tuple[int, int] | None]


class HalfDeleted:
    """The folders that this daemon must remove completely. One object per daemon."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, id: str, folder: Folder) -> None:
        task = asyncio.create_task(self._finish(id, folder), name=f"remove the rest of {id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends the retries; the next daemon continues."""
        await ended(*self._tasks)

    async def _finish(self, id: str, folder: Folder) -> None:
        backoff = Backoff(_WAITS_S)
        left = await asyncio.to_thread(_identity, folder)
        while True:
            await asyncio.sleep(backoff.next_wait())
            if not await asyncio.to_thread(_is_rest, folder, left):
                log.warning("%s was replaced after experiment %s was deleted; it stays", folder.path, id)
                break
            if not await asyncio.to_thread(folder.remove):
                log.info("removed the rest of the deleted experiment %s", id, extra={"action": "leftover"})
                break
        await self._supervisor.note(lambda c: index.drop_leftover(c, id))


def _is_rest(folder: Folder, left: _Identity) -> bool:
    """Whether the folder's place has only leftovers of the removal, and no restored experiment."""
    return all(now in (None, before) for now, before in zip(_identity(folder), left, strict=True))


def _identity(folder: Folder) -> _Identity:
    return _inode(folder.path), _inode(folder.path / "db" / "nni.sqlite")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
