"""Jobs without a loop: left by a closed experiment, of trials missing in a database that was restored from an older
copy, and of unlisted experiments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import NniManagerError, StoreError
from nni_manager.machines.keeper import machines, orphaned_jobs
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.machines import KeeperConnection
from nni_manager.scheduler.experiments import experiment_folder, leftovers
from nni_manager.scheduler.experiments.open_experiment import OpenExperiment
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.store.database import Database
from nni_manager.store.experiment.leftover_jobs import LeftoverJobs
from nni_manager.store.index import index

log = logging.getLogger(__name__)

#: The ids of all experiments, read before each removal, as one may be created meanwhile.
Listed = Callable[[], Awaitable[Collection[str]]]


async def note(shared: SharedParts, experiment: OpenExperiment, *, running: bool) -> None:
    """Notes the jobs that its services could not end or remove; without `running`, also services that were not closed
    and whose objects can be removed later."""
    troubles = {one.name: one.trouble for one in experiment.loop.live_services}
    services = {} if running else experiment.loop.services
    unclosed = [name for name, one in services.items() if not one.is_closed and one.platform.capabilities.clean_closes]
    await _note_on_services(shared, experiment, troubles, troubles.keys(), running=running, unclosed=unclosed)


async def note_abandoned(shared: SharedParts, experiment: OpenExperiment) -> None:
    """Notes jobs that may run on removed services, after their trials were ended without these."""
    removed = {name: one.state.trouble for name, one in experiment.loop.services.items() if one.is_removed}
    noted = shared.leftovers.services_of(experiment.id)
    if removed or noted:
        await _note_on_services(shared, experiment, removed, noted, running=True, decided=True)


async def _note_on_services(
    shared: SharedParts,
    experiment: OpenExperiment,
    troubles: Mapping[str, str],
    noted: Collection[str],
    *,
    running: bool,
    decided: bool = False,
    unclosed: Collection[str] = (),
) -> None:
    """Notes leftovers on its services; `noted`: services whose note is removed if nothing is left. `decided`: only jobs
    of closed attempts, on the services in `troubles`."""
    time_ms = shared.clock()
    try:
        found = await experiment.database.read(
            lambda c: leftovers.read_left_behind(
                c, experiment.folder, time_ms, running=running, decided=decided, unclosed=unclosed
            )
        )
        for left in found:
            if left.service in troubles or not decided:
                trouble = troubles.get(left.service) or left.sentence or "it could not be asked to end them"
                await shared.leftovers.note(replace(left, sentence=trouble))
        for service in set(noted) - {left.service for left in found}:
            await shared.leftovers.forget(experiment.id, service)
    except StoreError as error:
        log.error("leftovers of experiment %s could not be recorded: %s", experiment.id, error)


async def note_ended(shared: SharedParts, index_database: Database, left: LeftoverJobs) -> None:
    """Notes in the folder of a closed experiment that its jobs have ended."""
    entry = await index_database.read(lambda c: index.find(c, left.experiment_id))
    if entry is not None and left.experiment_id not in shared.leftovers.at_work():
        await asyncio.to_thread(experiment_folder.note_ended, entry.folder, left.job_names)
        shared.changes.note()


async def end_unrecorded(shared: SharedParts, experiment: OpenExperiment) -> None:
    """Ends the jobs here of trials that are missing in the database, which was restored from an older copy."""
    try:
        await orphaned_jobs.end(shared.keeper, experiment.id, forget=True, trials=frozenset(experiment.unrecorded))
    except NniManagerError as error:
        log.warning(
            "jobs of trials missing in the database of experiment %s could not be ended yet: %s", experiment.id, error
        )


async def end_unknown(
    shared: SharedParts, listed: Listed, platforms: Collection[str]
) -> list[tuple[LeftoverJobs, str]]:
    """Ends the jobs of unlisted experiments on these platforms (empty: all), at the keeper of this machine and those of
    other machines in use. Each with the reason why it was not ended; empty: it was."""
    ended: list[tuple[LeftoverJobs, str]] = []
    for platform, key, keeper in _keepers(shared):
        if not platforms or platform in platforms:
            with suppress(NniManagerError):  # it is unreachable, which its experiments report
                # one listener for all calls: without a listener the connection is closed
                await orphaned_jobs.at(keeper, "cleaner", partial(_end_at, keeper, platform, key, listed, ended))
    return ended


def _keepers(shared: SharedParts) -> list[tuple[str, str, Keeper]]:
    """(platform, key of the connection, keeper); that of this machine only if it was ever used."""
    others = [one for one in shared.connections.in_use(KeeperConnection) if one.keeper is not shared.keeper]
    found = [("remote", one.key, one.keeper) for one in others]
    if (shared.settings.data_dir / "keeper").is_dir():
        found.append(("local", machines.LOCAL, shared.keeper))
    return found


async def _end_at(
    keeper: Keeper, platform: str, key: str, listed: Listed, ended: list[tuple[LeftoverJobs, str]]
) -> None:
    """Adds what it ended to `ended`. Raises PlatformUnavailable."""
    found = await orphaned_jobs.running(keeper)
    for id_, names in found.items():
        if names and id_ not in await listed():
            left = LeftoverJobs(
                experiment_id=id_,
                service=platform,
                platform=platform,
                connection=key,
                section={},
                secrets={},
                job_names=names,
                sentence="its experiment is not listed",
                noted_ms=now_ms(),
                may_run=len(names),
            )
            ended.append((left, await _trouble(keeper, id_)))


async def _trouble(keeper: Keeper, experiment_id: str) -> str:
    try:
        await orphaned_jobs.end(keeper, experiment_id, forget=True)
    except NniManagerError as error:
        return str(error)
    return ""
