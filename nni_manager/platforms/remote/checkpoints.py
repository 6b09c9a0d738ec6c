"""The checkpoints of trials on machines: brought along, and removed.

The checkpoint of a trial follows it to another machine: before an attempt starts there, it is brought from the last one
that has one, be it the trial's own or that of the trial which it continues; it comes into the trial's own folder. It
goes from one login to the other through this process, in pieces, and is never whole in memory or on this machine's
disk. What cannot be brought is said: in the log, and on the standard error of the attempt that begins without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import asyncssh

from nni_manager.domain.errors import PlatformError
from nni_manager.domain.ids import attempt_directory, checkpoint_directory_of, job_name
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.machines.ssh.bootstrap import program_command
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.login import logged_in
from nni_manager.platform_kit.payload import checkpoint_beside
from nni_manager.platform_kit.tasks import happened
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from nni_manager.platforms.remote.experiment_machines import ExperimentMachines
from nni_manager.platforms.remote.machine_jobs import JobLocations, attempt_folder
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Of one checkpoint.
MOST_BYTES = 2**30
#: Seconds for all of it: a submission is given up after 60.
_LIMIT_S = 40.0
#: Seconds to wait for a machine whose first login is under way, as after a restart or a change of the machine list.
_LOGIN_S = 15.0
_PIECE_BYTES = 256 * 1024


class _NotMoved(Exception):
    """Its text says why, as the end of a sentence."""


class CheckpointMoves:
    """The moves of one service's checkpoints, from where `locations` says that trials ran."""

    def __init__(self, machines: ExperimentMachines, locations: JobLocations) -> None:
        self._machines = machines
        self._locations = locations

    async def bring(self, spec: JobSpec, site: ExperimentMachine) -> JobSpec:
        """The job as it is to start on a machine, once the checkpoint that it goes on with is there. Raises nothing of
        the way: a job without its newest checkpoint says so, and begins with an older one or anew."""
        places = list(self._places(spec))
        if all(key == site.entry.address.key for _, key in places):
            return spec
        if spec.is_repeat and spec.name in await site.jobs.listed():
            return spec  # it may be at work with it
        until_s = asyncio.get_running_loop().time() + _LIMIT_S
        for trial, key in places:
            limit = asyncio.timeout_at(until_s)
            try:
                async with limit:
                    if await self._has(trial, key, site, spec.trial_id):
                        return spec
            except (_NotMoved, MachineFault, asyncssh.Error, OSError, EOFError, ValueError) as error:
                if limit.expired():
                    return _told(spec, trial, f"it did not arrive within {_LIMIT_S:.0f} s")
                spec = _told(spec, trial, _why(error))
        return spec

    def _places(self, spec: JobSpec) -> Iterator[tuple[str, str]]:
        """(trial, machine) where the checkpoint may be that the job goes on with, the newest first."""
        for key in self._locations.machines(job_name(spec.experiment_id, spec.trial_id, 1), before=spec.attempt):
            yield spec.trial_id, key
        if spec.continues:
            for key in self._locations.machines(job_name(spec.experiment_id, spec.continues, 1)):
                yield spec.continues, key

    async def _has(self, trial_id: str, key: str, site: ExperimentMachine, own: str) -> bool:
        """Whether a machine has a checkpoint of a trial; from another one it is brought to the trial `own` then."""
        if key == site.entry.address.key:
            async with _running(site, "look", trial_id) as looking:
                return bool((await _answer(looking))["holds"])
        async with _running(await self._reachable(key), "send", trial_id) as sender:
            told = await _answer(sender)
            if told["holds"] and not told["is_sent"]:
                size, most = told["bytes"] >> 20, MOST_BYTES >> 20
                raise _NotMoved(f"it has {size} MB, and no more than {most} MB are brought")
            if told["holds"]:
                await _hand_over(sender, site, own)
            return bool(told["holds"])

    async def _reachable(self, key: str) -> ExperimentMachine:
        """The machine, logged in to. Raises _NotMoved."""
        site = self._machines.get(key)
        if site is None:
            raise _NotMoved("its machine is not in machineList any more")
        await happened(site.first, asyncio.timeout(_LOGIN_S))
        if not site.is_up:
            raise _NotMoved(site.why)
        return site


async def _hand_over(sender: asyncssh.SSHClientProcess[bytes], there: ExperimentMachine, trial_id: str) -> None:
    async with _running(there, "receive", trial_id) as receiver:
        await _answer(receiver)
        while piece := await sender.stdout.read(_PIECE_BYTES):
            receiver.stdin.write(piece)
            await receiver.stdin.drain()
        receiver.stdin.write_eof()
        if failed := (await _answer(receiver))["failed"]:
            raise _NotMoved(f"{there.entry.address.host} could not take it: {failed}")


def _why(error: Exception) -> str:
    if isinstance(error, _NotMoved):
        return str(error)
    return error.fault.sentence if isinstance(error, MachineFault) else f"the way to it broke ({error})"


def _told(spec: JobSpec, trial_id: str, why: str) -> JobSpec:
    whose = "" if trial_id == spec.trial_id else f" of trial {trial_id}"
    words = f"{protocol.ENV_CHECKPOINT_DIR}: the checkpoint{whose} was not brought here from another machine: {why}"
    log.warning("trial %s, attempt %d: %s", spec.trial_id, spec.attempt, words)
    return replace(spec, command=f"echo {shlex.quote(words)} >&2\n{spec.command}")


@asynccontextmanager
async def _running(
    site: ExperimentMachine, verb: str, trial_id: str
) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
    """`trial_runner.keeper.moving` on a machine, past all that its login prints. Raises MachineFault, OSError."""
    greeting, mark = site.machine.greeting, f"nni-manager-{secrets.token_hex(8)}:"
    if greeting is None:
        raise _NotMoved(site.why)
    own = checkpoint_directory_of(attempt_directory(trial_id, 1))
    arguments = (verb, f"{site.folder}/trials/{own}", MOST_BYTES)
    program = f"import sys\nsys.path.insert(0, {greeting.program!r})\n"
    program += f"from trial_runner.keeper.moving import main\nmain(*{arguments!r})\n"
    async with logged_in(site.entry) as connection:
        command, first = program_command(program, mark, python_path=site.entry.python_path)
        process = await connection.create_process(command, encoding=None)
        while mark.encode() not in (line := await process.stdout.readline()):
            if not line:
                raise EOFError("it ended")
        process.stdin.write(first)
        yield process


async def _answer(process: asyncssh.SSHClientProcess[bytes]) -> dict[str, Any]:
    """The next line of the program. Raises EOFError, with its last words; ValueError."""
    line = await process.stdout.readline()
    if not line:
        words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        raise EOFError(words[-1] if words else "it ended")
    return dict(json.loads(line))


#: Seconds for one machine, below the limit of the verb: one that hangs does not keep those of other machines.
_REMOVAL_S = 20.0


async def remove_checkpoints(site: ExperimentMachine, handles: Sequence[JobHandle]) -> dict[JobHandle, str]:
    """Removes the checkpoints of jobs' trials from their machine; answers why, of those that stay."""
    if not site.is_up:
        return dict.fromkeys(handles, site.why)
    own = {handle: checkpoint_beside(attempt_folder(site.folder, handle.job_name)) for handle in handles}
    stays = dict.fromkeys(own.values(), f"{site.entry.address.host} did not remove it within {_REMOVAL_S:.0f} s")
    with suppress(TimeoutError):  # the others are tried again
        async with asyncio.timeout(_REMOVAL_S):
            for folder in tuple(stays):
                stays[folder] = await _why_not_removed(site, folder)
    return {handle: stays[folder] for handle, folder in own.items() if stays[folder]}


async def _why_not_removed(site: ExperimentMachine, folder: str) -> str:
    """Empty: it is gone, and what was on its way to it, too."""
    try:
        await site.machine.remove(folder)
        await site.machine.remove(folder + protocol.CHECKPOINT_ARRIVING)
    except PlatformError as error:
        return str(error)
    return ""
