"""The checkpoints of trials on machines: moved to other machines, and removed.

Before an attempt starts on another machine, the newest checkpoint is copied there: the trial's own, or that of the
trial which it continues. It is stored in the trial's own folder. It passes through this process in pieces, from one
login to the other, and is never complete in memory or on this machine's disk. A failure is reported in the log, and on
the standard error of the attempt that begins without the checkpoint.
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

#: Maximum size of one checkpoint.
MOST_BYTES = 2**30
#: Seconds for the whole move: a submission is given up after 60.
_LIMIT_S = 40.0
#: Seconds to wait for a machine whose first login is under way, as after a restart or a change of the machine list, or
#: whose connection was lost a moment ago.
_LOGIN_S = 15.0
_PIECE_BYTES = 256 * 1024


class _NotMoved(Exception):
    """Its text gives the reason, as the end of a sentence."""


class CheckpointMoves:
    """The moves of one service's checkpoints. `locations`: where trials ran."""

    def __init__(self, machines: ExperimentMachines, locations: JobLocations) -> None:
        self._machines = machines
        self._locations = locations

    async def bring(self, spec: JobSpec, site: ExperimentMachine) -> JobSpec:
        """The job to start on a machine, after its checkpoint was copied there. Raises no errors of the copy: a job
        without its newest checkpoint reports that, and begins with an older one or from the start."""
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
        """(trial, machine) of possible checkpoints for the job, newest first."""
        for key in self._locations.machines(job_name(spec.experiment_id, spec.trial_id, 1), before=spec.attempt):
            yield spec.trial_id, key
        if spec.continues:
            for key in self._locations.machines(job_name(spec.experiment_id, spec.continues, 1)):
                yield spec.continues, key

    async def _has(self, trial_id: str, key: str, site: ExperimentMachine, own: str) -> bool:
        """Whether a machine has a checkpoint of a trial; if it is another machine, copies it for the trial `own`."""
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
        limit = asyncio.timeout(_LOGIN_S)
        if not site.first.is_set():
            await happened(site.first, limit)
        elif site.is_reconnecting:
            await happened(site.up, limit)
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
    """Runs `trial_runner.keeper.moving` on a machine, after its login's output. Raises MachineFault, OSError."""
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
    """The next line of the program. Raises EOFError, with its last output; ValueError."""
    line = await process.stdout.readline()
    if not line:
        words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        raise EOFError(words[-1] if words else "it ended")
    return dict(json.loads(line))


#: Seconds for one machine, less than the verb's limit, so that a hanging machine does not block the others.
_REMOVAL_S = 20.0


async def remove_checkpoints(site: ExperimentMachine, handles: Sequence[JobHandle]) -> dict[JobHandle, str]:
    """Removes the checkpoints of jobs' trials from their machine; returns the reasons of failures."""
    if not site.is_up:
        return dict.fromkeys(handles, site.why)
    own = {handle: checkpoint_beside(attempt_folder(site.folder, handle.job_name)) for handle in handles}
    stays = dict.fromkeys(own.values(), f"{site.entry.address.host} did not remove it within {_REMOVAL_S:.0f} s")
    with suppress(TimeoutError):  # the others are retried
        async with asyncio.timeout(_REMOVAL_S):
            for folder in tuple(stays):
                stays[folder] = await _why_not_removed(site, folder)
    return {handle: stays[folder] for handle, folder in own.items() if stays[folder]}


async def _why_not_removed(site: ExperimentMachine, folder: str) -> str:
    """Removes a checkpoint and incomplete copies of it; empty: success."""
    try:
        await site.machine.remove(folder)
        await site.machine.remove(folder + protocol.CHECKPOINT_ARRIVING)
    except PlatformError as error:
        return str(error)
    return ""
