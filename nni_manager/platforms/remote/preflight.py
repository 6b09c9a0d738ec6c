"""The preflight of `remote`: checks every machine and leaves nothing there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nni_manager.domain import version
from nni_manager.domain.formats import size
from nni_manager.machines.gpu_machines import gpu_findings
from nni_manager.machines.gpu_sample import GpuSample
from nni_manager.machines.ledger import Demand, MachineLedger
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.bootstrap import Greeting, arrive
from nni_manager.machines.ssh.faults import Fault, MachineFault
from nni_manager.machines.ssh.login import logged_in
from nni_manager.platform_kit.connections import Connections, Place
from nni_manager.platform_kit.contract import PreflightFinding, Severity
from nni_manager.platforms.remote import trial_python
from nni_manager.platforms.remote.shipping import ask
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import REMOTE_FIELD
from trial_runner import protocol

#: Seconds for one machine; less than the limit of the whole preflight.
_LOOK_S = 58.0
#: Tolerated clock difference in seconds; larger ones do not affect results, either.
_SKEW_S = 60
_LEAST_FREE_BYTES = 1024**3
_LEAST_FREE_INODES = 500
#: Subject of findings about the Python of trials.
_PYTHON = "python3 of trials"


async def look(
    entries: Mapping[Entry, Demand],
    connections: Connections,
    shared: SharedFolder | None = None,
    python_version: str = "",
) -> list[PreflightFinding]:
    """Findings about all machines, checked concurrently. `connections`: of the manager that will use them;
    `python_version`: of the Python that trials need, ``3.11``; empty: any.

    If some of several machines fail, the others run the trials: a warning, except for another version of Python.
    Raises OSError if the manager's own folder cannot be read.
    """
    place = None if connections.place is None else await asyncio.to_thread(connections.place)
    look = _Look(connections.identity, place, python_version)
    if shared is None:
        return _judged(await look.at_all(entries))
    here = await shared.preflight()
    async with shared.probe() as mark:
        look.storage = shared.program_elsewhere("look", mark)
        return [here, *_judged(await look.at_all(entries))]


def _judged(found: Sequence[list[PreflightFinding]]) -> list[PreflightFinding]:
    usable = any(all(one.severity not in _FATAL for one in findings) for findings in found)
    # a machine with another Python for trials is reachable, and will not change
    return [
        _lighter(one) if usable and not one.subject.endswith(_PYTHON) else one for findings in found for one in findings
    ]


_FATAL = (Severity.WRONG, Severity.AWAY)


@dataclass(slots=True)
class _Look:
    """Settings of the checks. `identity`, `place`: the manager's; `storage`: text of a program that checks mounts
    there, empty: no shared storage."""

    identity: str
    place: Place | None
    python_version: str
    storage: str = ""
    #: Machines that were logged in to.
    reached: set[Entry] = field(default_factory=set)

    async def at_all(self, entries: Mapping[Entry, Demand]) -> list[list[PreflightFinding]]:
        return await asyncio.gather(*(self._at(entry, demand) for entry, demand in entries.items()))

    async def _at(self, entry: Entry, demand: Demand) -> list[PreflightFinding]:
        host = entry.address.host
        try:
            async with asyncio.timeout(_LOOK_S):
                greeting, offset_s = await self._ask(entry, has_gpus=demand.count > 0)
                more = [finding async for finding in self._beside(entry)]
        except MachineFault as error:
            return [_finding(host, error.fault)]
        except TimeoutError:
            return [_finding(host, _late(entry in self.reached))]
        return [*_judge(host, greeting, offset_s), *_judge_gpus(host, greeting, demand), *more]

    async def _ask(self, entry: Entry, *, has_gpus: bool) -> tuple[Greeting, float]:
        async with logged_in(entry) as connection:
            self.reached.add(entry)
            _, greeting = await arrive(
                connection,
                folder=f"{self.identity}/{entry.address.folder}",
                python_path=entry.python_path,
                look=True,
                gpus=has_gpus,
                place=self.place,
            )
            return greeting, greeting.now_ms / 1000 - time.time()

    async def _beside(self, entry: Entry) -> AsyncIterator[PreflightFinding]:
        """Checks that need further logins, if relevant. Raises MachineFault."""
        host = entry.address.host
        if self.storage:
            yield (await ask(entry, self.storage)).finding(f"{host}: {REMOTE_FIELD}")
        if self.python_version and not entry.is_drained:
            found = await trial_python.ask(entry)
            yield found.finding(f"{host}: {_PYTHON}", self.python_version, trial_python.HOW)


def _late(is_reached: bool) -> Fault:
    """The fault of a machine that took too long. Logins and answers have limits of their own; this limits their sum."""
    if is_reached:
        sentence = f"it is logged in to, but did not answer all queries within {_LOOK_S:.0f} s (timeout)"
        return Fault(subject="session", sentence=sentence, fix="check whether the machine is overloaded")
    sentence = f"the login did not finish within {_LOOK_S:.0f} s (timeout)"
    return Fault(subject="login", sentence=sentence, fix="check how long `ssh` takes to it, and to the jump hosts")


def _judge(host: str, greeting: Greeting, offset_s: float) -> Iterator[PreflightFinding]:
    if not greeting.may_write:
        fault = Fault(
            subject="write permission",
            sentence=f"its user may not write into {greeting.home}",
            is_wrong=True,
            fix=f"`chown` or `chmod u+w` that folder on {host}",
        )
        yield _finding(host, fault)
        return
    folder = f"{greeting.home}/.nni-manager"
    sentence = f"Python {greeting.python} in {greeting.interpreter}, trials work in {folder}"
    yield PreflightFinding(Severity.FINE, f"{host}: login", sentence)
    if greeting.keeper and not version.fits(protocol.VERSION, greeting.keeper):
        yield PreflightFinding(
            severity=Severity.WARNING,
            subject=f"{host}: keeper",
            fix="wait for them, or use a manager of that version",
            sentence=f"trials of a manager of version {greeting.keeper} run there, this is {protocol.VERSION}: they"
            " continue, and new trials must wait until they have ended",
        )
    if greeting.free_inodes is not None and greeting.free_inodes < _LEAST_FREE_INODES:
        yield PreflightFinding(
            severity=Severity.WARNING,
            subject=f"{host}: disk",
            fix="delete files there",
            sentence=f"the file system of {greeting.home} has {greeting.free_inodes or 'no'} free inodes",
        )
    if greeting.disk_free_bytes < _LEAST_FREE_BYTES:
        yield PreflightFinding(
            severity=Severity.WARNING,
            subject=f"{host}: disk",
            fix="free disk space there",
            sentence=f"only {size(greeting.disk_free_bytes)} are free in {greeting.home}",
        )
    if abs(offset_s) > _SKEW_S:
        yield PreflightFinding(
            severity=Severity.WARNING,
            subject=f"{host}: clock",
            fix="synchronize it with a time server",
            sentence=f"its clock is {abs(offset_s):.0f} s {'ahead of' if offset_s > 0 else 'behind'} this machine's;"
            " displayed times are corrected",
        )


def _judge_gpus(host: str, greeting: Greeting, demand: Demand) -> Iterator[PreflightFinding]:
    if greeting.gpus is not None:
        machine = MachineLedger(host, title=host, has_gpus=True)
        machine.note_reading(GpuSample.parse(greeting.gpus))
        yield from gpu_findings(machine, demand)


def _finding(host: str, fault: Fault) -> PreflightFinding:
    severity = Severity.WRONG if fault.is_wrong else Severity.AWAY
    return PreflightFinding(
        severity=severity, subject=f"{host}: {fault.subject}", sentence=fault.sentence, fix=fault.fix
    )


def _lighter(finding: PreflightFinding) -> PreflightFinding:
    if finding.severity not in _FATAL:
        return finding
    return replace(finding, severity=Severity.WARNING, sentence=f"{finding.sentence}; it gets no trials until then")
