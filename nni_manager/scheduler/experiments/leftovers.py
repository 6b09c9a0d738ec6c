"""Jobs that may still run although their experiment is closed: noted in the index, and ended when possible.

They are ended by the next experiment on the same connection, when a used connection returns, at a user's request, and
by retries at growing intervals while the daemon runs. The notes are also in memory: they are few, and every description
of an experiment reads them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from nni_manager.config import credentials
from nni_manager.domain.errors import NniManagerError, PlatformUnavailable, StoreError
from nni_manager.domain.experiment import ExperimentWarning, PlatformSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.tasks import ended, happened
from nni_manager.scheduler.experiments.preflight import asked, standalone_host
from nni_manager.store import private, stored_config
from nni_manager.store.connection import connect_readonly
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments, jobs, leftover_jobs, services
from nni_manager.store.experiment.leftover_jobs import LeftoverJobs
from nni_manager.store.folder import Folder
from nni_manager.store.index.index import Entry
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Code of the warning.
MAY_STILL_RUN = "MAY_STILL_RUN"
#: Seconds between two retries; the last value repeats. A machine that is back is noticed within this time.
_LOOK_WAITS_S = (5.0, 10.0, 20.0, 40.0, 60.0)
#: Seconds for which a daemon without experiments stays because of leftovers.
_KEEP_DAEMON_S = 24 * 3600.0


class Leftovers:
    """The leftovers of all experiments of a daemon. `folder`: parent of experiments' folders, for adapters."""

    def __init__(self, index: Database, connections: Connections, folder: Path) -> None:
        self._index = index
        self._connections = connections
        self._folder = folder
        connections.on_return = self._end_on
        self._known: dict[tuple[str, str], LeftoverJobs] = {}
        #: Ids of open experiments, which end their own leftovers.
        self.at_work: Callable[[], Collection[str]] = tuple
        #: Called when these jobs have ended.
        self.on_ended: Callable[[LeftoverJobs], Awaitable[None]] = _nothing
        self._ending: dict[tuple[str, str], asyncio.Task[str]] = {}
        #: By note: its waits, and the time of the next attempt by the loop's clock.
        self._looks: dict[tuple[str, str], tuple[Backoff, float]] = {}
        self._noted = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Reads the stored notes, and starts the retries. Raises StoreError."""
        self._known = {_key(left): left for left in await self._index.read(leftover_jobs.load)}
        self._looking = asyncio.create_task(self._look(), name="end leftovers of experiments")

    async def close(self) -> None:
        """Cancels retries and calls; the next daemon continues."""
        await ended(self._looking, *self._ending.values())

    async def note(self, left: LeftoverJobs) -> None:
        """Notes jobs that may still run. Raises StoreUnavailable."""
        await self._index.try_write(lambda c: leftover_jobs.put(c, left))
        self._known[_key(left)] = left
        self._noted.set()

    async def forget(self, experiment_id: str, service: str) -> None:
        """Removes the note of an experiment and service; ignores a missing one."""
        if self._known.pop((experiment_id, service), None) is not None:
            await self._index.try_write(lambda c: leftover_jobs.drop(c, experiment_id, service))

    def reached(self, connection: str, *, by: tuple[str, str]) -> None:
        """Called when service `by` (experiment id, service) has connected and so ended its own leftovers. Starts ending
        those of closed experiments on the same connection."""
        for key, left in tuple(self._known.items()):
            if key == by:
                self._start_task(key, self._forget_own(left))
            elif left.connection == connection and left.experiment_id not in self.at_work():
                self._start(left)

    def _end_on(self, connection: str) -> None:
        """Starts ending leftovers of closed experiments on a connection that is back; for `remote`, on each machine."""
        for left in tuple(self._known.values()):
            if connection in left.connection.split(" ") and left.experiment_id not in self.at_work():
                self._start(left)

    async def end(self, platforms: Collection[str] = (), experiment_id: str = "") -> list[tuple[LeftoverJobs, str]]:
        """Tries to end leftovers of these platforms (empty: all) and of this experiment (empty: all). Each with the
        reason why it could not be ended; empty: it was."""
        chosen = [
            left
            for left in self._known.values()
            if (not platforms or left.platform in platforms) and experiment_id in ("", left.experiment_id)
        ]
        return list(zip(chosen, await asyncio.gather(*map(self._end_now, chosen)), strict=True))

    async def end_deleted(self, entry: Entry, now_ms: int, *, may_have_jobs: bool) -> None:
        """Notes the possible leftovers of a deleted experiment, and tries to end them. Raises StoreUnavailable."""
        for left in await asyncio.to_thread(left_by_deleted, entry, now_ms, may_have_jobs=may_have_jobs):
            await self.note(left)
        for left, trouble in await self.end(experiment_id=entry.id):
            if trouble:
                log.warning("jobs of experiment %s may still run on %s: %s", entry.id, left.service, trouble)

    async def _end_now(self, left: LeftoverJobs) -> str:
        """Repeats an attempt that fails, as it may have begun before the service was reachable."""
        under_way = self._ending.get(_key(left))
        if under_way is not None and not await asyncio.shield(under_way):
            return ""
        return await asyncio.shield(self._start(left))

    def services_of(self, experiment_id: str) -> frozenset[str]:
        """The services with a note of the experiment."""
        return frozenset(service for id, service in self._known if id == experiment_id)

    def warnings_of(self, experiment_id: str) -> tuple[ExperimentWarning, ...]:
        """Warnings of jobs of an experiment that may still run, one for each of its services."""
        return tuple(
            ExperimentWarning(code=MAY_STILL_RUN, message=_sentence(left))
            for left in self._known.values()
            if left.experiment_id == experiment_id and left.may_run != 0
        )

    def may_run(self, now_ms: int) -> bool:
        """Whether jobs may still run for which a daemon without experiments stays."""
        since_ms = now_ms - _KEEP_DAEMON_S * 1000
        return any(left.may_run != 0 and left.noted_ms > since_ms for left in self._known.values())

    # Retries

    async def _look(self) -> None:
        while True:
            self._noted.clear()
            self._looks = {key: self._looks.get(key) or _next_look(Backoff(_LOOK_WAITS_S)) for key in self._known}
            next_s = min((at_s for _, at_s in self._looks.values()), default=None)
            await happened(self._noted, asyncio.timeout_at(next_s))
            now_s = asyncio.get_running_loop().time()
            due = [key for key, (_, at_s) in self._looks.items() if at_s <= now_s and key in self._known]
            await asyncio.gather(*(self._look_after(key) for key in due))

    async def _look_after(self, key: tuple[str, str]) -> None:
        is_at_work = key[0] in self.at_work()
        if (left := self._known.get(key)) is not None and not is_at_work:  # otherwise it was just ended
            await asyncio.shield(self._start(left))
        if key in self._looks:
            self._looks[key] = _next_look(self._looks[key][0])

    # Ending

    def _start(self, left: LeftoverJobs) -> asyncio.Task[str]:
        """Starts an attempt, or returns the running one."""
        key = _key(left)
        return self._ending.get(key) or self._start_task(key, self._end(left))

    def _start_task(self, key: tuple[str, str], work: Coroutine[None, None, str]) -> asyncio.Task[str]:
        task = self._ending[key] = asyncio.create_task(work, name=f"end what {key[0]} left on {key[1]}")
        task.add_done_callback(lambda _: self._ending.pop(key, None))
        return task

    async def _forget_own(self, left: LeftoverJobs) -> str:
        try:
            await self.forget(left.experiment_id, left.service)
        except NniManagerError as error:
            log.warning("%s", error)
        return ""

    async def _end(self, left: LeftoverJobs) -> str:
        """Tries to end the jobs; returns the reason of a failure, or ''."""
        _, trouble = await asked("clean for good", left.service, self._clean(left))
        if not trouble:
            log.info("leftovers of experiment %s on %s were ended", left.experiment_id, left.service)
        return trouble

    async def _clean(self, left: LeftoverJobs) -> None:
        service, folder = _spec(left), self._folder / left.experiment_id
        host = standalone_host(
            left.experiment_id, left.service, folder, self._connections, storage_key=left.storage_key
        )
        adapter = registry.adapter_of(service)
        try:
            platform = adapter(credentials.adapter_config(service, left.secrets), host)
        except (ValueError, KeyError) as error:
            raise PlatformUnavailable(f"{left.service}: its section is not stored any more") from error
        await platform.clean(left.job_names)
        await self.on_ended(left)
        await self.forget(left.experiment_id, left.service)


def _next_look(backoff: Backoff) -> tuple[Backoff, float]:
    return backoff, asyncio.get_running_loop().time() + backoff.next_wait()


def _key(left: LeftoverJobs) -> tuple[str, str]:
    return left.experiment_id, left.service


async def _nothing(_: LeftoverJobs) -> None:
    pass


def _sentence(left: LeftoverJobs) -> str:
    count = left.may_run or len(left.job_names)
    names = ("1 job" if count == 1 else f"{count} jobs") if count else "jobs"
    return (
        f"{names} may still run on {left.service}: {left.sentence}; they are ended when it is reachable again, or with"
        f" `nnictl platform clean {left.platform}`"
    )


def read_left_behind(
    connection: sqlite3.Connection,
    folder: Folder,
    now_ms: int,
    *,
    running: bool,
    decided: bool,
    unclosed: Collection[str] = (),
) -> list[LeftoverJobs]:
    """Notes for jobs that are not forgotten, one per service. `running`: only jobs that may still run; `decided`: only
    jobs of closed attempts; `unclosed`: services that keep other objects, noted if they were used."""
    used: dict[str, tuple[str, ...]] = {name: () for name in jobs.services_used(connection) if name in unclosed}
    return _notes(connection, folder, now_ms, used | jobs.left(connection, running=running, decided=decided))


def left_by_deleted(entry: Entry, now_ms: int, *, may_have_jobs: bool) -> list[LeftoverJobs]:
    """Notes for the jobs of a deleted experiment, and for files on services that keep more than jobs; for its jobs by
    id if the database cannot be read. Blocks."""
    sentence = "the experiment was deleted"
    try:
        with closing(connect_readonly(entry.folder.require_database())) as connection:
            names = jobs.left(connection, running=False) if may_have_jobs else {}
            used = dict.fromkeys(jobs.services_used(connection), ())
            found = _notes(connection, entry.folder, now_ms, used | names, sentence)
        return [left for left in found if left.service in names or _leaves_files(left)]
    except (NniManagerError, sqlite3.Error, OSError, ValueError) as error:
        log.warning("searching the leftovers of experiment %s by its id: %s", entry.id, error)
    platforms = [one for one in entry.platform.split(",") if one]  # empty for some that NNI created
    if not platforms or not may_have_jobs:
        return []
    services = stored_config.services({"trainingService": [{"platform": one} for one in platforms]})
    return [
        _left(entry.id, service, {"platform": platform}, {}, (), sentence, now_ms)
        for service, platform in zip(services, platforms, strict=True)
    ]


def _notes(
    connection: sqlite3.Connection,
    folder: Folder,
    now_ms: int,
    names: Mapping[str, tuple[str, ...]],
    sentence: str = "",
) -> list[LeftoverJobs]:
    """A note for each service. `names`: of its jobs; `sentence`: why they could not be ended, if the store has no
    reason."""
    if not names:
        return []
    row, values = experiments.load(connection), _secrets(folder)
    removed = {name: service.settings for name, service in services.load(connection).items()}
    sections = removed | stored_config.services(json.loads(row.config))
    why = {name: "; ".join(sentences) for name, sentences in jobs.why_unreachable(connection).items()}
    may_run = jobs.left(connection, running=True)
    return [
        replace(
            _left(row.id, name, sections.get(name, {}), values, found, why.get(name, sentence), now_ms),
            may_run=len(may_run.get(name, ())),
            storage_key=row.storage_key,
        )
        for name, found in names.items()
    ]


def _secrets(folder: Folder) -> Mapping[str, str]:
    """The experiment's secrets; empty if they are unreadable: the jobs are then ended at the next connect."""
    try:
        return private.load(folder.private).secrets
    except StoreError as error:
        log.warning("the secrets of %s cannot be read: %s", folder.path, error)
        return {}


def _spec(left: LeftoverJobs) -> PlatformSpec:
    return PlatformSpec(name=left.platform, service=left.service, settings=left.section)


def _leaves_files(left: LeftoverJobs) -> bool:
    spec = _spec(left)
    try:
        adapter = registry.adapter_of(spec)
        return adapter.capabilities_for(credentials.adapter_config(spec, left.secrets)).leaves_files
    except (NniManagerError, ValueError, KeyError):
        return False


def _left(
    id: str,
    service: str,
    section: Mapping[str, Any],
    values: Mapping[str, str],
    names: tuple[str, ...],
    sentence: str,
    now_ms: int,
) -> LeftoverJobs:
    platform = str(section.get("platform", service))
    spec = PlatformSpec(name=platform, service=service, settings=section)
    return LeftoverJobs(
        experiment_id=id,
        service=service,
        platform=platform,
        connection=_connection_key(spec, values),
        section=section,
        secrets=values,
        job_names=names,
        sentence=sentence,
        noted_ms=now_ms,
    )


def _connection_key(service: PlatformSpec, values: Mapping[str, str]) -> str:
    try:
        return registry.adapter_of(service).connection_key(credentials.adapter_config(service, values))
    except (NniManagerError, ValueError, KeyError):
        return service.name
