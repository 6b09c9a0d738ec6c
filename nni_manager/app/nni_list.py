"""Entries of NNI's list of experiments, merged: those that are there already may be ours or of other managers."""

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
from nni_manager.store.index.index import Entry
from nni_manager.store.nni import nni_registry
from nni_manager.store.nni.nni_registry import Entries, RegistryBusy

#: NNI's manager begins at most so long after the time that its launcher notes, in milliseconds.
_LAUNCH_MS = 60_000


def merge_entry(
    entries: Entries, wanted: Mapping[str, dict[str, Any]], gone: set[str], own: Mapping[str, int | None]
) -> None:
    """Ours are exchanged, but for tags that somebody gave them; all others stay as they are.

    `own`: the processes that we named there.
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
    """Entries below our data directory that nothing lies behind."""
    ours = {
        id for id, entry in entries.items() if isinstance(entry, dict) and entry.get("logDir") == str(data_directory)
    }
    return {id for id in ours if not (data_directory / id).exists()}


def _is_removed(entry: Mapping[str, Any]) -> bool:
    """Whether NNI's `delete` has taken the folder of a stopped experiment; its entry is not to come back then."""
    return entry["status"] == ExperimentStatus.STOPPED and not (Path(entry["logDir"]) / entry["id"]).exists()


def _is_of_other_manager(known: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether an experiment is at work under another manager: a copy elsewhere, or one that NNI itself still runs."""
    if known.get("status") in (None, "STOPPED"):
        return False
    if entry["status"] != ExperimentStatus.STOPPED:  # two at work: the first one's stays, or they write for ever
        pid = known.get("pid")
        return known.get("logDir") != entry["logDir"] and isinstance(pid, int) and Path(f"/proc/{pid}").exists()
    return known.get("logDir") != entry["logDir"] or _is_alive(known)


def _is_alive(known: Mapping[str, Any]) -> bool:
    """Whether the process that runs it is there, and not a later one that has its number."""
    pid, launched_ms = known.get("pid"), known.get("startTime")
    if not isinstance(pid, int) or not isinstance(launched_ms, int):
        return False
    import psutil

    try:
        return psutil.Process(pid).create_time() * 1000 < launched_ms + _LAUNCH_MS
    except (psutil.Error, ValueError):
        return False


log = logging.getLogger(__name__)

#: So long after a change, in seconds: several changes are one write.
_GATHER_S = 0.02
#: Between two looks whether somebody else has changed the file, in seconds.
_LOOK_S = 5.0
#: Between two tries while somebody else writes the file, in seconds.
_BUSY_WAIT_S = 0.05
#: After so many of them in a row it is logged, and tried less often.
_BUSY_TRIES = 200
#: Between two tries after any other trouble, in seconds.
_TROUBLE_WAIT_S = 10.0
#: What the last word may take when the daemon ends, in seconds.
_LAST_S = 0.5


class NniList:
    """`entries`: all of the index. `listeners`: those that are open. `url`: of an endpoint.

    `pid`: of a process whose end is an experiment's, by its id; None: there is none.
    """

    def __init__(
        self,
        *,
        path: Path,
        entries: Callable[[], Awaitable[Sequence[Entry]]],
        listeners: Callable[[], Sequence[Listener]],
        url: Callable[[Endpoint], str],
        pid: Callable[[str], Awaitable[int | None]],
        data_directory: Path,
    ) -> None:
        self._path = path
        self._entries = entries
        self._listeners = listeners
        self._url = url
        self._pid = pid
        self._data_directory = data_directory
        self._changed = asyncio.Event()
        #: Experiments that the file may speak of, as they are ours or were.
        self._known: set[str] = set()
        #: What the file said of us last as far as we know.
        self._written: dict[str, dict[str, Any]] = {}
        #: The file that was found right; None: it must be looked at again.
        self._seen: tuple[int, ...] | None = None
        self._trouble = ""

    def note(self) -> None:
        """Something may have changed."""
        self._changed.set()

    async def begin(self) -> None:
        """Before anybody can delete one: what is in the index now was in the file."""
        with suppress(NniManagerError):  # it is tried again when the file is written, and said then
            self._known = {entry.id for entry in await self._entries()}

    async def run(self) -> None:
        """Writes what is noted until cancelled; what was noted last is still written then, if a moment is enough."""
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
        """Waits until something may have changed, here or in the file."""
        while not self._changed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
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
                wait_s = _BUSY_WAIT_S * (1 + os.getpid() % 7 / 7)  # two who met once do not meet again
                if tries >= _BUSY_TRIES:
                    self._log(f"NNI's list of experiments is not up to date: {error}")
                    wait_s = _TROUBLE_WAIT_S
            except (OSError, NniManagerError) as error:
                self._log(f"NNI's list of experiments cannot be written: {error}")
                wait_s = _TROUBLE_WAIT_S
            self._changed.set()  # in case this is the end
            await asyncio.sleep(wait_s)

    async def _write_once(self) -> None:
        wanted = {entry.id: await self._describe(entry) for entry in await self._entries()}
        self._seen = await asyncio.to_thread(self._update, wanted)
        self._written, self._known = wanted, set(wanted)
        self._trouble = ""

    def _update(self, wanted: Mapping[str, dict[str, Any]]) -> tuple[int, ...] | None:
        """The file that needs no change. After a change it is looked at once more: two may have written at a time."""
        found = nni_registry.identity(self._path)
        has_changed = nni_registry.update(self._path, lambda entries: self._change(entries, wanted))
        return None if has_changed else found

    def _change(self, entries: Entries, wanted: Mapping[str, dict[str, Any]]) -> None:
        """Writes nothing that is there already, and so does not answer those who write for ever."""
        # what a killed daemon deleted may be there still, and a folder may outlive its entry by a moment
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
        if entry.status is ExperimentStatus.STOPPED:
            return found
        # NNI's tools call stopped what has no process, so ours stands in where there is no other
        return {**found, "pid": await self._pid(entry.id) or os.getpid()}
