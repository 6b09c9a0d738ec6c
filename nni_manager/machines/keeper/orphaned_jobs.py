"""Ends the jobs of a closed or deleted experiment at a keeper; forgets them only if the experiment is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from nni_manager.domain.ids import trial_of_job
from nni_manager.machines.keeper.client import Job, Keeper, Listener
from trial_runner import protocol

#: Seconds between two checks for their end. Ends are only sent to a follower, together with all results, which could
#: not be stored here.
_LOOK_S = 0.1
_ALIVE = (protocol.PREPARING, protocol.RUNNING)


async def end(
    keeper: Keeper, experiment_id: str, *, forget: bool, owner: str | None = None, trials: Collection[str] = ()
) -> None:
    """Ends all jobs of an experiment, of one of its services (`owner`), or of these trials, and returns when they have
    ended.

    Unless `forget` is set, the keeper keeps their ends and results until the experiment is opened again. Raises
    PlatformUnavailable.
    """

    async def end_all() -> None:
        jobs = await _end_running(keeper, experiment_id, owner, trials)
        if jobs and forget:
            await keeper.request("forget", names=list(jobs))

    await at(keeper, f"cleaner of {owner or experiment_id}{'/'.join(sorted(trials)[:1])}", end_all)


async def running(keeper: Keeper) -> dict[str, tuple[str, ...]]:
    """Experiment → the names of its jobs that run at a keeper; empty: all have ended, and wait for their manager.

    Raises PlatformUnavailable.
    """
    found: dict[str, tuple[str, ...]] = {}

    async def read() -> None:
        listed: dict[str, Job] = (await keeper.request("list"))["jobs"]
        for name, job in listed.items():
            id_ = _experiment_of(job)
            found[id_] = (*found.get(id_, ()), *((name,) if job["state"] in _ALIVE else ()))

    await at(keeper, "reader of all owners", read)
    return found


async def at(keeper: Keeper, listener: str, work: Callable[[], Awaitable[None]]) -> None:
    """Calls a function with a keeper that may have no other connection."""
    await keeper.listen(listener, Listener())
    try:
        await work()
    finally:
        keeper.leave(listener)


async def _end_running(
    keeper: Keeper, experiment_id: str, owner: str | None, trials: Collection[str]
) -> dict[str, Job]:
    """Ends running jobs; returns all jobs of the experiment or service by name, after all have ended."""
    asked: set[str] = set()
    while True:
        listed: dict[str, Job] = (await keeper.request("list"))["jobs"]
        jobs = {
            name: job
            for name, job in listed.items()
            if _experiment_of(job) == experiment_id
            and owner in (None, job["owner"])
            and (not trials or trial_of_job(name)[1] in trials)
        }
        alive = {name for name, job in jobs.items() if job["state"] in _ALIVE}
        for name in alive - asked:
            await keeper.request("signal", name=name)
        if not alive:
            return jobs
        asked |= alive
        await asyncio.sleep(_LOOK_S)


def _experiment_of(job: Job) -> str:
    """The experiment of a job: owners are ``service:experiment``."""
    return str(job["owner"]).rpartition(":")[2]
