"""Ends and removes what an experiment left on its machines, without its being at work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nni_manager.domain.errors import PlatformError, PlatformUnavailable
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.keeper import orphaned_jobs
from nni_manager.platform_kit.keeper.jobs import owner_of
from nni_manager.platforms.remote.machine import Machine
from nni_manager.platforms.remote.site import Entry


async def clean(entries: Sequence[Entry], host: Host) -> None:
    """Raises PlatformUnavailable when not all of it is gone, after all that could be done."""
    troubles = await asyncio.gather(*(_clean(entry, host) for entry in entries))
    if any(troubles):
        raise PlatformUnavailable("; ".join(filter(None, troubles)))


async def _clean(entry: Entry, host: Host) -> str:
    """Answers why it could not be done."""

    def make() -> Machine:
        folder = f"{host.connections.identity}/{entry.address.folder}"
        return Machine(entry.address, host.connections.places, folder=folder, python_path=entry.python_path)

    owner = f"cleaner of {host.experiment_id}/{host.service}"
    try:
        async with host.connections.lease(entry.address.key, owner, make, entry.credential.as_text()) as lease:
            machine = await lease.use()
            await orphaned_jobs.at(machine.keeper, owner, lambda: _end_and_remove(machine, host))
    except PlatformError as error:
        return str(error)
    return ""


async def _end_and_remove(machine: Machine, host: Host) -> None:
    await orphaned_jobs.end(machine.keeper, host.experiment_id, forget=True, owner=owner_of(host))
    assert machine.greeting is not None, "it is connected"
    await machine.remove(f"{machine.greeting.folder}/{host.experiment_id}.{host.service}")
