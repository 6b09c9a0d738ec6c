"""Jobs of one training service at a keeper, for the adapters that start jobs at keepers.

The keeper reports every change. Queries are answered from its reports; only jobs that it has not named are queried. The
end of a job is reported when all its results are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NniManagerError, PlatformError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.ids import attempt_directory_of
from nni_manager.domain.job import JobSpec, JobState
from nni_manager.domain.reason import Reason
from nni_manager.machines.keeper import machines, orphaned_jobs
from nni_manager.machines.keeper.client import Listener
from nni_manager.machines.keeper.job_events import Deliveries, ForgottenJobs, Known, job_report
from nni_manager.machines.keeper.left_results import left_lines
from nni_manager.machines.keeper.machines import GPU_AGE_S, KeeperConnection
from nni_manager.machines.ledger import Reservation
from nni_manager.machines.placement import Placement
from nni_manager.machines.waiting_queue import KeeperMachine
from nni_manager.platform_kit.connections import Lease
from nni_manager.platform_kit.contract import Host, NoRoom
from nni_manager.platform_kit.payload import checkpoint_beside
from trial_runner import protocol

log = logging.getLogger(__name__)


class KeeperJobs(Listener):
    """The jobs of one training service at a keeper, and its `Listener`. Entered with `enter`, left with `leave`.

    Methods raise PlatformUnavailable. `has_results`: jobs write results where the keeper reads them. `key`: of the
    keeper's connection. `stop_patience_s`: seconds in which the keeper must answer a stop; afterwards it counts as
    unreachable.
    """

    def __init__(
        self,
        host: Host,
        *,
        has_results: bool = True,
        known: Known | None = None,
        key: str = machines.LOCAL,
        place: str = "this machine",
        stop_patience_s: float | None = None,
    ) -> None:
        self._host = host
        self._key = key
        #: The keeper's machine, for messages.
        self._place = place
        self._when_stopping = {} if stop_patience_s is None else {"patience_s": stop_patience_s}
        self.owner = owner_of(host)
        self._held = AsyncExitStack()
        self._connection: KeeperConnection | None = None
        self.unheard_of = Observation(state=JobState.LOST, message=f"the keeper of {place} does not know this job")
        self._unreported = Observation(state=JobState.UNKNOWN, message=f"the connection to the keeper of {place} broke")
        #: The latest report of each job on this connection to the keeper.
        self._reports: dict[str, Observation] = {}
        #: Accepted jobs that did not run at the last report: the keeper has no file of them.
        self._preparing: set[str] = set()
        #: Set while the keeper is connected and its jobs are followed.
        self._connected = asyncio.Event()
        #: Serializes follow requests: concurrent ones would make the keeper send results twice.
        self._following = asyncio.Lock()
        self._deliveries = Deliveries(host, self._tell) if has_results else None
        self._forgotten_jobs = ForgottenJobs(self, known)
        #: The folder of a job's attempt on the keeper's machine.
        self.attempt_folder: Callable[[str], str] = lambda name: f"{host.folder}/trials/{attempt_directory_of(name)}"

    # Life cycle

    async def enter(self, machines: Sequence[KeeperMachine] = ()) -> None:
        """Starts listening to the service's jobs. `machines`: those with places and with their jobs at this keeper."""
        await self.enter_with((await self._held.enter_async_context(self._lease())).connection, machines)

    async def enter_with(self, connection: KeeperConnection, machines: Sequence[KeeperMachine] = ()) -> None:
        """Enters like `enter`, with a connection that the caller leased and returns after `leave`."""
        self._connection = connection
        try:
            with suppress(PlatformError):  # they are read when it answers
                await self._connection.serve(machines)
            await self._connection.keeper.listen(self.owner, self)
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Stops listening; jobs continue. Unstored results are sent again after the next `enter`."""
        if self._connection is not None:
            self._connection.keeper.leave(self.owner)
            await self._connection.read_again()
            self._connection = None
        self._forget_reported()
        if self._deliveries is not None:
            await self._deliveries.cancel()
        await self._forgotten_jobs.cancel()
        await self._held.aclose()

    # Machines

    async def until_read(self) -> None:
        """Returns when the ledgers contain all jobs that run at the keeper. Raises PlatformUnavailable."""
        await self._entered.until_read()

    async def read_gpus(self, max_age_s: float = GPU_AGE_S) -> None:
        """Reads the GPUs into the ledger, unless it did within `max_age_s`. Raises PlatformUnavailable."""
        await self._entered.read_gpus(max_age_s)

    # Verbs

    async def reserve(self, placement: Placement, name: str, *, is_repeat: bool) -> Reservation | NoRoom | None:
        """The places of a job about to be submitted. None: it has ended and needs no places.

        No place is granted before the keeper's list was read: jobs of an earlier daemon may have places.
        """
        try:
            await self._entered.until_read()
        except PlatformUnavailable as error:
            raise PlatformUnavailable(str(error), refused=not is_repeat) from error
        if is_repeat and (await self.listed()).get(name, _RUNS)["state"] not in _ALIVE:
            return None
        return placement.reserve(name, is_repeat=is_repeat) or NoRoom(why=placement.why())

    async def submit(self, name: str, job: Mapping[str, Any], reservation: Reservation | None = None) -> Observation:
        """Starts a job. `job`: other fields of `spawn`, see `trial_runner.protocol`. Also raises SubmitRejected."""
        reserved = {} if reservation is None else {"reservation": reservation.as_json()}
        before = self._reports.get(name)
        answer = await self.request("spawn", name=name, owner=self.owner, **job, **reserved)
        heard = self._reports.get(name)
        if heard is not None and heard is not before:  # reported right after the answer, so newer
            return heard
        report = self.report_of(answer)
        if answer["state"] in _ALIVE:  # for an ended job, `reports` queries its results
            self._note_running(name, answer, report, is_news=False)  # its submission is waiting for it
        elif reservation is not None:
            self._entered.on_end(name)
        return report

    async def until_connected(self) -> None:
        """Returns when the keeper is connected; waits while connecting. Raises PlatformUnavailable."""
        if not self._connected.is_set():
            await self._entered.keeper.until_connected()
            await self._connected.wait()

    async def reports(self, names: Sequence[str]) -> dict[str, Observation]:
        """The reports on these jobs. Raises PlatformUnavailable."""
        if not self._connected.is_set():
            raise PlatformUnavailable(f"the keeper of {self._place} is unreachable: {self._trouble or 'connecting'}")
        if any(name not in self._reports for name in names):
            await self._follow(names)
        return {name: self._reports.get(name, self._unreported) for name in names}

    async def listed(self) -> dict[str, dict[str, Any]]:
        """The jobs of this service that the keeper has, by name."""
        jobs: dict[str, dict[str, Any]] = (await self.request("list"))["jobs"]
        return {name: job for name, job in jobs.items() if job["owner"] == self.owner}

    async def cancel(self, names: Sequence[str], grace_s: float) -> None:
        """Asks all processes of the jobs to end; ignores unknown jobs."""
        for name in names:
            await self.request("signal", name=name, grace_s=grace_s, **self._when_stopping)

    async def forget(self, names: Sequence[str]) -> None:
        """Ends what still runs of the jobs; the keeper forgets them, if necessary after their last process."""
        await self._forgotten_jobs.send_off([name for name in names if self._may_run(name)])
        await self.request("forget", names=list(names))
        for name in names:
            if name not in self._forgotten_jobs:
                self._reports.pop(name, None)
                self._preparing.discard(name)

    async def clean(self, names: Sequence[str]) -> None:
        """Ends and removes these jobs, and, if not entered, all jobs of the service."""
        if self._connection is not None:
            return await self.forget(names)
        async with self._lease() as lease:
            await orphaned_jobs.end(lease.connection.keeper, self._host.experiment_id, forget=True, owner=self.owner)

    async def request(self, verb: str, **arguments: Any) -> Any:
        """Sends the keeper a request and returns its answer."""
        return await self._entered.keeper.request(verb, **arguments)

    # Reports of the keeper

    async def on_connected(self) -> None:
        self._connected.set()
        try:
            await self._follow(())
            await self._forgotten_jobs.end_unknown()
        except NniManagerError as error:
            log.warning("following the keeper's jobs failed: %s", error)
        self._host.wake("")

    def on_disconnected(self) -> None:
        self._forget_reported()
        self._host.wake("")

    def on_lines(self, job_name: str, outbox: str, start: int, end: int, lines: list[str]) -> Awaitable[None]:
        if self._deliveries is None or job_name in self._forgotten_jobs:
            return asyncio.sleep(0)  # they arrive otherwise, or too late
        return self._deliveries.add(job_name, outbox, start, end, lines)

    def on_changed(self, job_name: str, job: dict[str, Any]) -> None:
        if job_name not in self._forgotten_jobs:
            self._note_running(job_name, job, self.report_of(job))

    def on_refused(self, job_name: str, kind: str, sentence: str) -> None:
        self._preparing.discard(job_name)
        if job_name in self._forgotten_jobs:
            self._reports.pop(job_name, None)
            self._forgotten_jobs.note_end(job_name, self._host.wake)
        elif kind == protocol.UNAVAILABLE:
            self._tell(job_name, _untaken(sentence))
        else:
            self._tell(job_name, Observation(state=JobState.FAILED, cause=Reason.SUBMIT_REJECTED, message=sentence))

    def on_ended(self, job_name: str, job: dict[str, Any]) -> None:
        self._preparing.discard(job_name)
        if job_name in self._forgotten_jobs:
            self._reports.pop(job_name, None)
            self._forgotten_jobs.note_end(job_name, self._host.wake)
        else:
            report = self.report_of(job)
            if self._deliveries is None or not self._deliveries.hold_end(job_name, report):
                self._tell(job_name, report)

    def report_of(self, job: Mapping[str, Any]) -> Observation:
        """The keeper's description of a job as a report; adapters of other machines add to it."""
        return job_report(job)

    # Helpers

    @property
    def _entered(self) -> KeeperConnection:
        if self._connection is None:
            raise PlatformUnavailable(f"the keeper of {self._place} is not connected yet", refused=True)
        return self._connection

    def _lease(self) -> AbstractAsyncContextManager[Lease[KeeperConnection]]:
        return self._host.connections.lease(self._key, f"{self._host.experiment_id}/{self._host.service}")

    @property
    def _trouble(self) -> str:
        return self._connection.keeper.trouble if self._connection is not None else "not entered"

    async def _follow(self, names: Sequence[str]) -> None:
        """Queries these jobs, and all undecided ones that the keeper has not named on this connection."""
        async with self._following:
            if self._deliveries is not None:
                await self._deliveries.settled()  # they change the offsets that are read next
            followed = await self._host.followed(names)
            has_results = self._deliveries is not None
            unheard = {n: dict(at) if has_results else {} for n, at in followed.items() if n not in self._reports}
            if unheard:
                answer = await self.request("follow", jobs=unheard)
                for name in self._note_all(answer):
                    await self._lose(name, unheard.get(name, {}))

    def _note_all(self, answer: dict[str, Any]) -> list[str]:
        """Returns the names of jobs that the keeper does not know, though they may have run."""
        for name, job in answer["jobs"].items():
            if job["state"] in _ALIVE:
                if name not in self._reports:  # reports right after the answer are newer
                    self._note_running(name, job, self.report_of(job))
            else:  # its end is reported after its last lines
                self._reports.setdefault(name, _DRAINING)
        lost = []
        for name in answer["unknown"]:
            was_preparing = name in self._preparing
            self._preparing.discard(name)
            if was_preparing:
                self._tell(name, _untaken(self.unheard_of.message))
            else:
                lost.append(name)
        return lost

    async def _lose(self, name: str, stored: Mapping[str, int]) -> None:
        """Follows a job unknown to the keeper if its processes run; otherwise delivers the results in its folder, then
        its end."""
        place = {"owner": self.owner, "attempt_directory": self.attempt_folder(name)}
        with suppress(SubmitRejected):  # the keeper cannot use the folder
            job = await self.request("adopt", name=name, **place, **{"from": dict(stored)})
            if job.get("state"):
                self._note_all({"jobs": {name: job}, "unknown": []})
                return
        if self._deliveries is not None:
            async for part in left_lines(self.request, self.attempt_folder(name), stored):
                self._deliveries.add(name, *part)
            if self._deliveries.hold_end(name, self.unheard_of):
                self._reports[name] = _DRAINING
                return
        self._tell(name, self.unheard_of)

    def _note_running(self, name: str, job: dict[str, Any], report: Observation, *, is_news: bool = True) -> None:
        """Notes that a job runs or is about to, unless its end was reported between the keeper's answer and now."""
        known = self._reports.get(name)
        if known is None or known is self.unheard_of or known.is_untaken or not known.state.is_final:
            (self._preparing.add if job["state"] == protocol.PREPARING else self._preparing.discard)(name)
            self._tell(name, report, is_news=is_news)

    def _tell(self, name: str, report: Observation, *, is_news: bool = True) -> None:
        self._reports[name] = report
        if is_news:
            self._host.wake(name)

    def _may_run(self, name: str) -> bool:
        report = self._reports.get(name)
        return report is None or not (report.state.is_final or report is _DRAINING)

    def _forget_reported(self) -> None:
        """Clears the reports of this connection: the next one queries jobs that it does not name."""
        self._connected.clear()
        self._reports.clear()
        if self._deliveries is not None:
            self._deliveries.drop_ends()


def spawn_request(
    spec: JobSpec, *, command: str, environment: Mapping[str, str], directory: str, attempt_directory: str
) -> dict[str, Any]:
    """The job as `KeeperJobs.submit` expects it: its command, and its folders as paths on the keeper's machine."""
    return {
        "command": command,
        "environment": dict(environment),
        "directory": directory,
        "attempt_directory": attempt_directory,
        "checkpoint": checkpoint_beside(attempt_directory),
        "files": {protocol.PARAMETER_FILE: spec.parameter_record},
        "grace_s": spec.grace_period_s,
        "from": dict(spec.stored),
    }


def owner_of(host: Host) -> str:
    """The owner of a service's jobs at a keeper, ``service:experiment``."""
    # names used by earlier versions for those of `local`, and some may still run
    return host.experiment_id if host.service == "local" else f"{host.service}:{host.experiment_id}"


def _untaken(sentence: str) -> Observation:
    return Observation(state=JobState.LOST, message=sentence, is_untaken=True)


_ALIVE = (protocol.PREPARING, protocol.RUNNING)
_RUNS = {"state": protocol.RUNNING}
_DRAINING = Observation(state=JobState.UNKNOWN, message="ended; its last results are being read")
