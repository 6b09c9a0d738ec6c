"""Ends jobs and removes files that a closed experiment left on its machines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from nni_manager.domain.errors import InvalidInput, PlatformError, PlatformUnavailable
from nni_manager.machines.keeper import orphaned_jobs
from nni_manager.machines.keeper.jobs import owner_of
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.machine import Machine
from nni_manager.platform_kit.contract import Host
from nni_manager.platforms.remote.experiment_machines import Known
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Seconds for a removed machine without open jobs: it may no longer exist.
_FORMER_S = 10.0


async def clean(machines: Mapping[str, Known], host: Host, *, is_deleted: bool) -> None:
    """Ends jobs and removes files of the experiment on its machines. `is_deleted`: also files written by trials.

    Raises PlatformUnavailable, after trying all machines, if one is not clean.
    """
    tasks = [_clean(one.entry, host, is_deleted) for one in machines.values() if one.has_jobs]
    if is_deleted:
        tasks += [_clean_former(one.entry, host) for one in machines.values() if not one.has_jobs]
    troubles = await asyncio.gather(*tasks)
    if any(troubles):
        raise PlatformUnavailable("; ".join(filter(None, troubles)))


async def _clean_former(entry: Entry, host: Host) -> str:
    """Cleans a removed machine, for a short time: its files are not needed any more."""
    try:
        async with asyncio.timeout(_FORMER_S):
            trouble = await _clean(entry, host, is_deleted=True)
    except TimeoutError:
        trouble = f"{entry.address.host}: no answer within {_FORMER_S:.0f} s"
    if trouble:
        log.warning(
            "%s; it is not in machineList any more and keeps the trials' files: `ssh -p %d %s@%s rm -r"
            " .nni-manager/%s/%s/%s.%s` removes it",
            trouble,
            entry.address.port,
            entry.address.user,
            entry.address.host,
            host.connections.identity,
            entry.address.folder,
            host.experiment_id,
            host.service,
        )
    return ""


async def _clean(entry: Entry, host: Host, is_deleted: bool) -> str:
    """Cleans one machine; returns the reason of a failure, empty: success."""
    owner = f"cleaner of {host.experiment_id}/{host.service}"
    try:
        async with host.connections.lease(
            entry.address.key,
            owner,
            lambda: Machine(entry.address, host.connections),
            entry.credential.as_text(),
        ) as lease:
            lease.connection.look_for_python(entry.python_path)
            machine = await lease.use()
            await orphaned_jobs.at(machine.keeper, owner, lambda: _end_and_remove(machine, host, is_deleted))
    except PlatformError as error:
        return str(error)
    return ""


async def _end_and_remove(machine: Machine, host: Host, is_deleted: bool) -> None:
    await orphaned_jobs.end(machine.keeper, host.experiment_id, forget=True, owner=owner_of(host))
    assert machine.greeting is not None, "it is connected"
    folder = f"{machine.greeting.folder}/{host.experiment_id}.{host.service}"
    if is_deleted:
        return await machine.remove(folder)
    with suppress(InvalidInput, OSError):  # the experiment has no code
        archive = f"{folder}/{(await host.code()).name}"
        await machine.remove(archive)
        await machine.remove(archive + protocol.CODE_TREE)
