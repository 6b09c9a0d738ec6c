"""The jobs of one experiment on its machines: where each job runs, and the reports of each machine's keeper."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.machines.keeper.jobs import KeeperJobs
from nni_manager.machines.ssh.address import Address
from nni_manager.platform_kit.contract import Host
from trial_runner import protocol
from trial_runner.wire.descriptors import Descriptor

_FILE = "machines.tsv"
#: In place of a machine: the job is unwanted; with `_GONE`: its keeper has also forgotten it.
_UNWANTED = "-"
_GONE = "--"


class JobLocations:
    """The file with the machine of each job, and its content. Threads write and read the file. The content changes only
    on the event loop, as submissions iterate over it during writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        #: Serializes writes, so that lines are in the order of the submissions.
        self._writing = asyncio.Lock()
        self._machines: dict[str, str] = {}
        #: Name of a trial's first job → numbers of its attempts → their machines.
        self._attempts: dict[str, dict[int, str]] = {}
        self._unwanted: set[str] = set()
        self._gone: set[str] = set()

    async def load(self) -> None:
        """Reads the file. Raises OSError."""
        lines = await asyncio.to_thread(_lines, self._path)
        self._machines, self._attempts, self._unwanted, self._gone = {}, {}, set(), set()
        for line in lines:
            name, _, machine = line.partition("\t")
            self._take(name, machine)

    def machine(self, job_name: str) -> str | None:
        """The key of a job's machine; None: according to this file, the job never started."""
        return self._machines.get(job_name)

    def machines(self, first_job: str, before: int | None = None) -> list[str]:
        """The keys of the machines of a trial's attempts, latest first, without duplicates. With a number: only of the
        attempts before it. `first_job`: name of the first attempt's job."""
        attempts = self._attempts.get(first_job, {})
        earlier = sorted((number for number in attempts if before is None or number < before), reverse=True)
        return list(dict.fromkeys(attempts[number] for number in earlier))

    def has_jobs_on(self, machine: str) -> bool:
        """Whether a machine has started jobs that its keeper has not forgotten."""
        return any(at == machine and name not in self._gone for name, at in self._machines.items())

    def used(self) -> frozenset[str]:
        """The machines on which any job started; its files stay there until the experiment is deleted."""
        return frozenset(self._machines.values())

    def is_wanted(self, job_name: str) -> bool:
        return job_name not in self._unwanted

    async def put(self, job_name: str, machine: str) -> None:
        """Notes that a job is about to start on a machine. Raises OSError."""
        if self._machines.get(job_name) != machine or job_name in self._unwanted:
            await self._write([job_name], machine)

    def know(self, job_name: str, machine: str) -> None:
        """Notes a job's machine from its handle, unless the file has one."""
        if job_name not in self._machines:
            self._place(job_name, machine)

    async def give_up(self, job_names: Iterable[str]) -> None:
        """Notes that jobs are to end, wherever they are. Raises OSError."""
        if names := [name for name in job_names if name not in self._unwanted]:
            await self._write(names, _UNWANTED)

    async def note_gone(self, job_names: Iterable[str]) -> None:
        """Notes that the keeper of these jobs has forgotten them or no longer exists. Raises OSError."""
        if names := [name for name in job_names if name not in self._gone]:
            await self._write(names, _GONE)

    async def _write(self, job_names: Sequence[str], machine: str) -> None:
        async with self._writing:
            await asyncio.to_thread(_append, self._path, "".join(f"{name}\t{machine}\n" for name in job_names))
            for name in job_names:
                self._take(name, machine)

    def _take(self, job_name: str, machine: str) -> None:
        if machine in (_UNWANTED, _GONE):
            self._unwanted.add(job_name)
            if machine == _GONE:
                self._gone.add(job_name)
        elif machine:
            self._place(job_name, machine)
            self._unwanted.discard(job_name)
            self._gone.discard(job_name)

    def _place(self, job_name: str, machine: str) -> None:
        self._machines[job_name] = machine
        first_job, number = _attempt(job_name)
        self._attempts.setdefault(first_job, {})[number] = machine


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Descriptor(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)) as file:
        os.write(file, text.encode())


def _attempt(job_name: str) -> tuple[str, int]:
    """The name of the trial's first job, and the number of this job's attempt."""
    number = attempt_directory_of(job_name).partition("-")[2]
    return (job_name.removesuffix(f"-{number}"), int(number)) if number.isdecimal() else (job_name, 1)


#: Seconds for a machine to accept a cancellation; stopping an experiment waits for it.
_STOP_PATIENCE_S = 5.0


class MachineJobs(KeeperJobs):
    """The jobs of one experiment at a machine's keeper.

    `on_up`, `on_down`: called when the keeper becomes reachable or unreachable. `explained`: adds details to a report.
    `started`, `refused`: called when the machine has started a job, or could not for a reason of its own.
    """

    def __init__(
        self,
        host: Host,
        locations: JobLocations,
        address: Address,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        explained: Callable[[Observation], Observation],
        started: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        key = address.key

        async def known(names: Collection[str]) -> Collection[str]:
            return [name for name in names if locations.is_wanted(name) and locations.machine(name) in (key, None)]

        async def followed(names: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
            found = await host.followed(names)
            return {name: at for name, at in found.items() if name in names or locations.machine(name) in (key, None)}

        super().__init__(
            replace(host, followed=followed), known=known, key=key, place=address.host, stop_patience_s=_STOP_PATIENCE_S
        )
        self._address = address
        self.unheard_of = replace(self.unheard_of, place=address.host)
        self._up = on_up
        self._down = on_down
        self._explained = explained
        self._started = started
        self._refused = refused
        self.is_up = False
        #: Names of jobs that run or ran there, as reported to this daemon.
        self.seen: set[str] = set()

    async def forget(self, names: Sequence[str]) -> None:
        await super().forget(names)
        self.seen.difference_update(names)

    def report_of(self, job: Mapping[str, Any]) -> Observation:
        """The report on a job, with its machine."""
        if job["state"] != protocol.PREPARING:
            self.seen.add(job["name"])
        report, host = self._explained(super().report_of(job)), self._address.host
        return replace(report, place=report.place or host)  # for jobs with GPUs, the ledger names the machine

    def on_changed(self, job_name: str, job: dict[str, Any]) -> None:
        if job["state"] == protocol.RUNNING:
            self._started()
        super().on_changed(job_name, job)

    def on_refused(self, job_name: str, kind: str, sentence: str) -> None:
        if kind == protocol.UNAVAILABLE:
            self._refused(sentence)
        super().on_refused(job_name, kind, sentence)

    async def on_connected(self) -> None:
        await super().on_connected()
        self.is_up = True
        self._up()
        self._host.wake("")

    def on_disconnected(self) -> None:
        self.is_up = False
        self._down()
        super().on_disconnected()


def attempt_folder(folder: str, job_name: str) -> str:
    """The folder of a job's attempt. `folder`: the experiment's on the machine."""
    return f"{folder}/trials/{attempt_directory_of(job_name)}"
