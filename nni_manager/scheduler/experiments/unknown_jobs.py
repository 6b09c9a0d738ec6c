"""Jobs at keepers whose experiments no list has: their folders and their list were lost."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial

from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import NniManagerError
from nni_manager.machines.keeper import machines, orphaned_jobs
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.machines import KeeperConnection
from nni_manager.scheduler.experiments.services import SharedParts
from nni_manager.store.experiment.leftover_jobs import LeftoverJobs


async def end(
    shared: SharedParts, listed: Collection[str], platforms: Collection[str]
) -> list[tuple[LeftoverJobs, str]]:
    """Ends the jobs of experiments not `listed`, on these platforms (empty: all), at the keeper of this machine
    and those of other machines that are in use. Each with the reason why it could not be ended; empty: it was."""
    ended: list[tuple[LeftoverJobs, str]] = []
    for platform, key, keeper in _keepers(shared):
        if not platforms or platform in platforms:
            with suppress(NniManagerError):  # it is away, which its experiments say
                # one listener for all calls: without any the connection is given up
                await orphaned_jobs.at(keeper, "cleaner", partial(_end_at, keeper, platform, key, listed, ended))
    return ended


def _keepers(shared: SharedParts) -> list[tuple[str, str, Keeper]]:
    """(platform, key of the connection, keeper); that of this machine only where it was ever used."""
    others = [one for one in shared.connections.in_use(KeeperConnection) if one.keeper is not shared.keeper]
    found = [("remote", one.key, one.keeper) for one in others]
    if (shared.settings.data_dir / "keeper").is_dir():
        found.append(("local", machines.LOCAL, shared.keeper))
    return found


async def _end_at(
    keeper: Keeper, platform: str, key: str, listed: Collection[str], ended: list[tuple[LeftoverJobs, str]]
) -> None:
    """Adds what it ended to `ended`. Raises PlatformUnavailable."""
    found = await orphaned_jobs.running(keeper)
    for id_, names in found.items():
        if id_ not in listed:
            left = LeftoverJobs(
                experiment_id=id_,
                service=platform,
                platform=platform,
                connection=key,
                section={},
                secrets={},
                job_names=names,
                sentence="no list of experiments has it",
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
