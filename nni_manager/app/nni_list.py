"""Keeps our entries in NNI's list of experiments, a file that other managers write, too."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nni_manager.app.listening.listeners import Listener
from nni_manager.domain.endpoint import Endpoint
from nni_manager.domain.errors import NniManagerError
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.platform_kit.tasks import happened
from nni_manager.store.index.index import Entry
from nni_manager.store.nni import nni_registry
from nni_manager.store.nni.nni_registry import Entries, RegistryBusy

#: Most milliseconds between the start time that NNI's launcher records and the start of its manager process.
_LAUNCH_MS = 60_000


def merge_entry(
    entries: Entries, wanted: Mapping[str, dict[str, Any]], gone: set[str], own: Mapping[str, int | None]
) -> None:
    """Replace our entries, keeping tags that users added and all other entries.

    `own`: experiment → process id that we wrote.
    """
    for id in gone:
        entries.pop(id, None)
    for id, entry in wanted.items():
        known = entries.get(id)
        known = known if isinstance(known, dict) else {}
        is_ours = known.get("pid") is not None and known["pid"] in (own.get(id), os.getpid())
        if not is_ours and (_is_of_other_manager(known, entry) or (id not in entries and _is_removed(entry))):
            continue
        tag = known.get("tag")
        entries[id] = {**entry, "tag": tag} if isinstance(tag, list) else entry


def without_folder(entries: Entries, data_directory: Path) -> set[str]:
    """Ids of entries without a folder below our data directory."""
    ours = {
        id for id, entry in entries.items() if isinstance(entry, dict) and entry.get("logDir") == str(data_directory)
    }
    return {id for id in ours if not (data_directory / id).exists()}


def _is_removed(entry: Mapping[str, Any]) -> bool:
    """Whether NNI's `delete` removed the folder of a stopped experiment; its entry must not come back."""
    return entry["status"] == ExperimentStatus.STOPPED and not (Path(entry["logDir"]) / entry["id"]).exists()


def _is_of_other_manager(known: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether another manager has the experiment open: NNI itself, or a manager with a copy."""
    if known.get("status") in (None, "STOPPED"):
        return False
    # if both are open, keep the first entry; else the two managers would overwrite each other forever
    if entry["status"] != ExperimentStatus.STOPPED:
        pid = known.get("pid")
        return known.get("logDir") != entry["logDir"] and isinstance(pid, int) and Path(f"/proc/{pid}").exists()
    return known.get("logDir") != entry["logDir"] or _is_alive(known)


def _is_alive(known: Mapping[str, Any]) -> bool:
    """Whether the entry's process is alive, not a later one with the same id."""
    pid, launched_ms = known.get("pid"), known.get("startTime")
    if not isinstance(pid, int) or not isinstance(launched_ms, int):
        return False
    import psutil

    try:
        return psutil.Process(pid).create_time() * 1000 < launched_ms + _LAUNCH_MS
    except (psutil.Error, ValueError):
        return False


log = logging.getLogger(__name__)

#: Seconds to wait after a change, so that several changes are one write.
_GATHER_S = 0.02
#: Seconds between two checks whether another program has changed the file.
_LOOK_S = 5.0
#: Seconds between two attempts while another program writes the file.
_BUSY_WAIT_S = 0.05
#: Attempts in a row after which it is logged, and tried less often.
_BUSY_TRIES = 200
#: Seconds between two attempts after any other error.
_TROUBLE_WAIT_S = 10.0
#: Seconds for the last write when the daemon ends.
_LAST_S = 0.5


class NniList:
    """`entries`: all of the index. `listeners`: those that are open. `url`: of an endpoint.

    `pid`: experiment's id → id of its placeholder process; None: it has none.
    `is_open`: experiment's id → whether it can have one.
    """

    def __init__(
        self,
        *,
        path: Path,
        entries: Callable[[], Awaitable[Sequence[Entry]]],
        listeners: Callable[[], Sequence[Listener]],
        url: Callable[[Endpoint], str],
        pid: Callable[[str], Awaitable[int | None]],
        is_open: Callable[[str], bool],
        data_directory: Path,
    ) -> None:
        self._path = path
        self._entries = entries
        self._listeners = listeners
        self._url = url
        self._pid = pid
        self._is_open = is_open
        self._data_directory = data_directory
        self._changed = asyncio.Event()
        #: Ids of experiments that are or were ours, so the file may list them.
        self._known: set[str] = set()
        #: Our entries as last written.
        self._written: dict[str, dict[str, Any]] = {}
        #: Identity of the file that was last found up to date; None: it must be checked.
        self._seen: tuple[int, ...] | None = None
        self._trouble = ""

    def note(self) -> None:
        """Note that an entry may have changed."""
        self._changed.set()

    async def begin(self) -> None:
        """Record the experiments of the index, which the file may list. Call this before one can be deleted."""
        with suppress(NniManagerError):  # retried, and reported, when the file is written
            self._known = {entry.id for entry in await self._entries()}

    async def run(self) -> None:
        """Write noted changes until cancelled, then the last ones within `_LAST_S`."""
        self.note()
        try:
            while True:
                await self._news()
                await asyncio.sleep(_GATHER_S)
                await self._write()
        finally:
            if self._changed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_S):
                        await self._write()

    async def _news(self) -> None:
        """Wait until our entries or the file may have changed."""
        while not self._changed.is_set():
            await happened(self._changed, asyncio.timeout(_LOOK_S))
            if await asyncio.to_thread(nni_registry.identity, self._path) != self._seen:
                self.note()

    async def _write(self) -> None:
        tries = 0
        while True:
            self._changed.clear()
            try:
                return await self._write_once()
            except asyncio.CancelledError:
                self._changed.set()
                raise
            except RegistryBusy as error:
                tries += 1
                wait_s = _BUSY_WAIT_S * (1 + os.getpid() % 7 / 7)  # differs by process, to avoid another collision
                if tries >= _BUSY_TRIES:
                    self._log(f"NNI's list of experiments is not up to date: {error}")
                    wait_s = _TROUBLE_WAIT_S
            except (OSError, NniManagerError) as error:
                self._log(f"NNI's list of experiments cannot be written: {error}")
                wait_s = _TROUBLE_WAIT_S
            self._changed.set()  # for the write at the end
            await asyncio.sleep(wait_s)

    async def _write_once(self) -> None:
        wanted = {entry.id: await self._describe(entry) for entry in await self._entries()}
        self._seen = await asyncio.to_thread(self._update, wanted)
        self._written, self._known = wanted, set(wanted)
        self._trouble = ""

    def _update(self, wanted: Mapping[str, dict[str, Any]]) -> tuple[int, ...] | None:
        """Identity of the file if it needs no change.

        None after a change, to check again, because two processes may have written.
        """
        found = nni_registry.identity(self._path)
        has_changed = nni_registry.update(self._path, lambda entries: self._change(entries, wanted))
        return None if has_changed else found

    def _change(self, entries: Entries, wanted: Mapping[str, dict[str, Any]]) -> None:
        """Change `entries`; keep equal ones, so that two managers do not trigger each other forever."""
        # a killed daemon's deleted experiment may still be listed, and a folder may exist shortly after its entry
        gone = (self._known | without_folder(entries, self._data_directory)) - wanted.keys()
        own = {id: entry.get("pid") for id, entry in self._written.items()}
        merge_entry(entries, wanted, gone, own)

    def _log(self, sentence: str) -> None:
        if sentence != self._trouble:
            log.warning("%s", sentence, extra={"action": "registry"})
            self._trouble = sentence

    async def _describe(self, entry: Entry) -> dict[str, Any]:
        port = next((listener.port for listener in self._listeners() if listener.kind == "service"), None)
        found = nni_registry.describe(entry, service_port=port, url=self._url)
        if entry.status is ExperimentStatus.STOPPED or not self._is_open(entry.id):
            return found  # NNI's `stop` would end the process that is listed for an experiment about to open
        # NNI's tools consider an experiment without a process stopped, so the daemon's id is the fallback
        return {**found, "pid": await self._pid(entry.id) or os.getpid()}
