"""The checkpoint of a trial follows it to another machine: before an attempt starts there, it is brought from the last.

It goes from one login to the other through this process, in pieces, and is never whole in memory or on this machine's
disk. What cannot be brought is said: in the log, and on the standard error of the attempt that begins without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncssh

from nni_manager.domain.ids import attempt_directory_of, checkpoint_directory_of, job_name
from nni_manager.domain.job import JobSpec
from nni_manager.machines.ssh.bootstrap import program_command
from nni_manager.machines.ssh.faults import MachineFault
from nni_manager.machines.ssh.login import log_in
from nni_manager.platforms.remote.experiment_machine import ExperimentMachine
from nni_manager.platforms.remote.experiment_machines import ExperimentMachines
from nni_manager.platforms.remote.job_locations import JobLocations
from trial_runner import protocol

log = logging.getLogger(__name__)

#: Of one checkpoint.
MOST_BYTES = 2**30
#: Seconds for all of it: a submission is given up after 60.
_LIMIT_S = 40.0
_PIECE_BYTES = 256 * 1024


class _NotMoved(Exception):
    """Its text says why, as the end of a sentence."""


class CheckpointMoves:
    """The moves of one service's checkpoints, from where `locations` says that a trial ran last."""

    def __init__(self, machines: ExperimentMachines, locations: JobLocations) -> None:
        self._machines = machines
        self._locations = locations

    async def bring(self, spec: JobSpec, site: ExperimentMachine) -> JobSpec:
        """The job as it is to start on a machine, once the checkpoint that it goes on with is there. Raises nothing of
        the way: a job without its checkpoint says so, and begins anew."""
        found = self._last_place(spec)
        if found is None or found[1] == site.entry.address.key:
            return spec
        if spec.is_repeat and spec.name in await site.jobs.listed():
            return spec  # it may be at work with it
        trial, key = found
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._move(trial, self._reachable(key), site)
        except _NotMoved as error:
            return _told(spec, trial, str(error))
        except TimeoutError:
            return _told(spec, trial, f"it did not arrive within {_LIMIT_S:.0f} s")
        except MachineFault as error:
            return _told(spec, trial, error.fault.sentence)
        except (asyncssh.Error, OSError, EOFError, ValueError) as error:
            return _told(spec, trial, f"the way to it broke ({error})")
        return spec

    def _last_place(self, spec: JobSpec) -> tuple[str, str] | None:
        """(trial, machine) of the attempt whose checkpoint the job goes on with; None: it begins with none."""
        own = job_name(spec.experiment_id, spec.trial_id, 1)
        key = self._locations.last_machine(own, before=spec.attempt) if spec.attempt > 1 else None
        if key is not None:
            return spec.trial_id, key
        key = self._locations.last_machine(job_name(spec.experiment_id, spec.continues, 1)) if spec.continues else None
        return (spec.continues, key) if key is not None else None

    def _reachable(self, key: str) -> ExperimentMachine:
        site = self._machines.get(key)
        if site is None:
            raise _NotMoved("its machine is not in machineList any more")
        if not site.is_up:
            raise _NotMoved(site.why)
        return site

    async def _move(self, trial_id: str, here: ExperimentMachine, there: ExperimentMachine) -> None:
        name = checkpoint_directory_of(attempt_directory_of(job_name("", trial_id, 1)))
        async with _running(here, "send", name) as sender:
            told = await _answer(sender)
            if told["bytes"] > MOST_BYTES:
                size, most = told["bytes"] >> 20, MOST_BYTES >> 20
                raise _NotMoved(f"it has {size} MB, and no more than {most} MB are brought")
            if not told["is_sent"]:
                return  # it never had one
            async with _running(there, "receive", name) as receiver:
                await _answer(receiver)
                while piece := await sender.stdout.read(_PIECE_BYTES):
                    receiver.stdin.write(piece)
                    await receiver.stdin.drain()
                receiver.stdin.write_eof()
                if failed := (await _answer(receiver))["failed"]:
                    raise _NotMoved(f"{there.entry.address.host} could not take it: {failed}")


def _told(spec: JobSpec, trial_id: str, why: str) -> JobSpec:
    """The job with words on its standard error."""
    whose = "" if trial_id == spec.trial_id else f" of trial {trial_id}"
    words = f"{protocol.ENV_CHECKPOINT_DIR}: the checkpoint{whose} was not brought here from another machine: {why}"
    log.warning("trial %s, attempt %d: %s", spec.trial_id, spec.attempt, words)
    return replace(spec, command=f"echo {shlex.quote(words)} >&2\n{spec.command}")


@asynccontextmanager
async def _running(site: ExperimentMachine, verb: str, name: str) -> AsyncIterator[asyncssh.SSHClientProcess[bytes]]:
    """`trial_runner.keeper.moving` on a machine, past all that its login prints. Raises MachineFault, OSError."""
    greeting, mark = site.machine.greeting, f"nni-manager-{secrets.token_hex(8)}:"
    if greeting is None:
        raise _NotMoved(site.why)
    arguments = (verb, f"{site.folder}/trials/{name}", MOST_BYTES)
    program = f"import sys\nsys.path.insert(0, {greeting.program!r})\n"
    program += f"from trial_runner.keeper.moving import main\nmain(*{arguments!r})\n"
    connection = await log_in(site.entry.address, site.entry.credential)
    try:
        command, first = program_command(program, mark, python_path=site.entry.python_path)
        process = await connection.create_process(command, encoding=None)
        while mark.encode() not in (line := await process.stdout.readline()):
            if not line:
                raise EOFError("it ended")
        process.stdin.write(first)
        yield process
    finally:
        connection.abort()


async def _answer(process: asyncssh.SSHClientProcess[bytes]) -> dict[str, Any]:
    """The next line of the program. Raises EOFError, with its last words; ValueError."""
    line = await process.stdout.readline()
    if not line:
        words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        raise EOFError(words[-1] if words else "it ended")
    return dict(json.loads(line))
