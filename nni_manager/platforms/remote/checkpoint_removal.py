"""The removal of checkpoints from a machine: one that cannot be removed does not keep the others there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nni_manager.domain.errors import PlatformError
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.payload import checkpoint_beside
from nni_manager.platforms.remote import job
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from trial_runner import protocol

#: Seconds for one machine, below the limit of the verb: one that hangs does not keep those of other machines.
_LIMIT_S = 20.0


async def remove(site: ExperimentMachine, handles: Sequence[JobHandle]) -> dict[JobHandle, str]:
    """Removes the checkpoints of jobs' trials from their machine; answers why, of those that stay."""
    if not site.is_up:
        return dict.fromkeys(handles, site.why)
    own = {handle: checkpoint_beside(job.attempt_folder(site.folder, handle.job_name)) for handle in handles}
    stays = dict.fromkeys(own.values(), f"{site.entry.address.host} did not remove it within {_LIMIT_S:.0f} s")
    try:
        async with asyncio.timeout(_LIMIT_S):
            for folder in tuple(stays):
                stays[folder] = await _why_not_removed(site, folder)
    except TimeoutError:
        pass  # the others are tried again
    return {handle: stays[folder] for handle, folder in own.items() if stays[folder]}


async def _why_not_removed(site: ExperimentMachine, folder: str) -> str:
    """Empty: it is gone, and what was on its way to it, too."""
    try:
        await site.machine.remove(folder)
        await site.machine.remove(folder + protocol.CHECKPOINT_ARRIVING)
    except PlatformError as error:
        return str(error)
    return ""
