"""A machine as one experiment uses it: its login, code and jobs, and the reason why it takes no jobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformError, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobState
from nni_manager.machines.ssh.address import Entry
from nni_manager.machines.ssh.machine import Machine
from nni_manager.machines.waiting_queue import KeeperMachine
from nni_manager.platform_kit.connections import HealthState, Lease
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.machine_report import MachineReport
from nni_manager.platform_kit.tasks import ended, happened
from nni_manager.platforms.remote import trial_python
from nni_manager.platforms.remote.machine_jobs import JobLocations, MachineJobs, attempt_folder
from nni_manager.platforms.remote.shipping import leave_storage, ship, use_storage
from nni_manager.shared_storage.shared_folder import SharedFolder
from nni_manager.shared_storage.shared_mount import REMOTE_FIELD
from nni_manager.shared_storage.storage_folders import sha256_of
from trial_runner.wire.backoff import Backoff

log = logging.getLogger(__name__)

#: Seconds between two attempts of the first login to a machine; the last value repeats.
_RETRY_WAITS_S = (1.0, 2.0, 5.0, 15.0)
#: Seconds between two attempts after a refused login or host key; the last value repeats. A booting machine
#: refuses for a moment; a machine that counts refusals locks the account.
_REFUSED_WAITS_S = (30.0, 120.0, 300.0, 600.0)
#: Seconds for which an outage counts as short.
_SHORT_OUTAGE_S = 60.0
#: Seconds to exclude a machine that did not accept code or start a job; the last value repeats.
_ASIDE_WAITS_S = (1.0, 5.0, 15.0)


class ExperimentMachine:
    """A machine as one experiment uses it, between `start` and `stop`.

    `first`: set when it takes jobs, or when the reason why not is known. `up`: set while its keeper is reachable.
    """

    def __init__(
        self,
        entry: Entry,
        host: Host,
        locations: JobLocations,
        changed: Callable[[], None],
        *,
        has_gpus: bool,
        shared: SharedFolder | None,
        python_version: str,
    ) -> None:
        self.entry = entry
        self._host = host
        self._changed = changed
        self.keeper_machine = KeeperMachine(
            name=f"remote:{entry.address.key}", title=entry.address.host, places=None if has_gpus else 0
        )
        self._shared = shared
        #: Version of Python that trials need, ``3.11``; empty: any.
        self._python_version = python_version
        #: The experiment's folder on shared storage, as the machine sees it; empty: unknown, or no shared storage.
        self.shared_folder = ""
        #: The experiment's jobs there; entered while logged in to the machine.
        self.jobs = MachineJobs(
            host, locations, entry.address, self._on_up, self._on_down, self._explained, self.note_start, self.set_aside
        )
        self.jobs.attempt_folder = lambda name: attempt_folder(self.folder, name)
        self._is_entered = False
        self._lease: Lease[Machine] | None = None
        self._task: asyncio.Task[None] | None = None
        self._shipping: asyncio.Task[None] | None = None
        self.first, self.up = asyncio.Event(), asyncio.Event()
        self._renewed = asyncio.Event()
        #: Why it cannot be used; None: it can, or the connection has the reason.
        self.refusal: BadCredentials | None = None
        self._trouble = ""
        self._since_s = time.time()
        #: Path of the code there; empty: not sent yet.
        self.archive = ""
        self._progress = ""
        #: Why it is excluded for a while, though it responds; empty: it is not.
        self._aside = ""
        self._refused_jobs = Backoff(_ASIDE_WAITS_S)
        #: Names of jobs whose cancellation was not delivered.
        self._untold: set[str] = set()
        #: Nothing can start: packing the code failed.
        self.code_error = ""
        #: SHA-256 of the sent code, in hex.
        self.code_sha256 = ""

    # Life cycle

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"machine {self.entry.address.host}")

    async def stop(self) -> None:
        """Ends the use of the machine; jobs continue."""
        await ended(self._task)
        await ended(self._shipping)  # the first task may have started it

    async def _run(self) -> None:
        connections, address = self._host.connections, self.entry.address
        owner = f"{self._host.experiment_id}/{self._host.service}"
        async with connections.lease(
            address.key,
            owner,
            lambda: Machine(address, connections),
            self.entry.credential.as_text(),
        ) as lease:
            self._lease = lease
            lease.connection.look_for_python(self.entry.python_path)
            lease.connection.on_health.append(self._on_health)
            try:
                await self._live(lease)
            finally:
                lease.connection.on_health.remove(self._on_health)

    async def _live(self, lease: Lease[Machine]) -> None:
        failed, refused = Backoff(_RETRY_WAITS_S), Backoff(_REFUSED_WAITS_S)
        while True:
            self._renewed.clear()
            try:
                machine = await lease.use()
                self.refusal = None
                refused.reset()
                await self._work(lease, machine)
                failed.reset()
            except BadCredentials as error:
                self.refusal = error
                self._be_troubled(str(error))
                await self._pause(refused)
            except PlatformUnavailable as error:
                self._be_troubled(str(error))
                await self._pause(failed)
            except Exception as error:  # without a log entry the machine would stay unused unnoticed
                log.exception("machine %s", self.entry.address.host, extra={"action": "barrier"})
                self._be_troubled(f"bug in the manager: {error!r}")
                await self._pause(failed)

    async def _pause(self, backoff: Backoff) -> None:
        """Waits before the next attempt; a user or another experiment may end the wait."""
        await happened(self._renewed, asyncio.timeout(backoff.next_wait()))

    async def _work(self, lease: Lease[Machine], machine: Machine) -> None:
        """Follows the jobs there until the credentials change or are refused. Raises BadCredentials."""
        try:
            self._is_entered = True
            await self.jobs.enter_with(machine, [self.keeper_machine] if self.keeper_machine.places is None else [])
            while not self._renewed.is_set():
                await self._renewed.wait()
                if machine.fault is not None and machine.fault.is_refusal:
                    self._renewed.clear()
                    await lease.refused(_refusal(machine))
        finally:
            self._is_entered = False
            await self.jobs.leave()

    def renew(self, entry: Entry) -> None:
        """Accepts changed fields of the same machine."""
        before, self.entry = self.entry, entry
        if entry.python_path != before.python_path and self._lease is not None:
            self._lease.connection.look_for_python(entry.python_path)
        if entry.credential != before.credential and self._lease is not None:
            lease, text = self._lease, entry.credential.as_text()
            self._renewing = asyncio.create_task(lease.renew(text))
            self._renewing.add_done_callback(lambda _: self._renewed.set())

    def try_again(self) -> None:
        """Retries a failed login at once. Ignored for a machine in use."""
        if self._lease is not None and not self._is_entered:
            self._lease.connection.forget_refusals()
            self._renewed.set()

    # State

    @property
    def machine(self) -> Machine:
        """The connection to the machine. Raises PlatformUnavailable while it is not logged in to."""
        if self._lease is None or not self._is_entered:
            raise PlatformUnavailable(self.why, refused=True)
        return self._lease.connection

    @property
    def is_up(self) -> bool:
        return self._is_entered and self.jobs.is_up

    @property
    def is_reconnecting(self) -> bool:
        """Whether its connection was lost a moment ago, and is probably back soon."""
        return not self.is_up and time.time() - self._since_s < _SHORT_OUTAGE_S

    @property
    def is_left_alone(self) -> bool:
        """Whether a keeper of another version runs there; it keeps its jobs until they end."""
        return self._lease is not None and not self.is_up and self._lease.connection.keeper.is_other_version

    @property
    def takes_jobs(self) -> bool:
        return self.is_up and not self.entry.is_drained and bool(self.archive or self.code_error)

    @property
    def is_out_of_use(self) -> bool:
        """Whether the machine is unreachable, or starts nothing for a while.

        False while its code is being sent, or the machine is drained.
        """
        return self.first.is_set() and (not self.is_up or bool(self._aside))

    @property
    def why(self) -> str:
        """The reason why the machine takes no jobs; empty: it takes jobs."""
        host = self.entry.address.host
        if self.is_left_alone:
            return f"{host} takes no trials: {self._trouble}"
        if not self.is_up:
            since = time.strftime("%H:%M", time.localtime(self._since_s))
            return f"{host} unreachable since {since} ({self._fault_words or self._trouble or 'connecting'})"
        if self.entry.is_drained:
            return f"{host} is drained"
        if self.archive:
            return ""
        doing = "the code is being sent" if self._shared is None else "its shared storage is being checked"
        return f"{host}: {self._aside}" if self._aside else f"{host}: {doing}{self._progress}"

    @property
    def _fault_words(self) -> str:
        """The fault of its connection, with the next step if the user must act; empty: none."""
        fault = self._lease.connection.fault if self._lease is not None else None
        return "" if fault is None else str(fault) if fault.is_wrong else fault.sentence

    def unasked(self, name: str) -> Observation:
        """The report on a job while its machine is unreachable: lost after a time, unless its keeper is known to run.

        A job with an undelivered cancellation counts as unreachable in any case.
        """
        host = self.entry.address.host
        if self.is_left_alone and name not in self._untold:
            return Observation(state=JobState.UNKNOWN, message=self.why, place=host)
        return Observation(state=JobState.UNKNOWN, unreachable=self.why or host, place=host)

    async def cancel(self, names: Sequence[str], grace_period_s: float) -> None:
        """Asks jobs to end, and notes undelivered cancellations. Raises PlatformUnavailable."""
        try:
            await self.jobs.cancel(names, grace_period_s)
        except PlatformUnavailable:
            self._untold.update(names)
            raise

    @property
    def report(self) -> MachineReport:
        connection = self._lease.connection if self._lease is not None and self._is_entered else None
        greeting = connection.greeting if connection is not None else None
        return MachineReport(
            name=self.entry.address.host,
            key=self.entry.address.key,
            ledger=self.keeper_machine.name,
            why=self.why,
            is_drained=self.entry.is_drained,
            is_listed=True,
            jobs=None if connection is None else len(connection.running),
            processors=None if greeting is None else greeting.processors,
        )

    @property
    def free_processors(self) -> int:
        """The number of processors without a job of this daemon; negative if jobs share them."""
        greeting = self.machine.greeting
        return (greeting.processors if greeting is not None else 1) - len(self.machine.running)

    def _be_troubled(self, sentence: str) -> None:
        if not self._trouble:
            self._since_s = time.time()
        self._trouble = sentence.removeprefix(f"{self.entry.address.host}: ")
        self.first.set()
        self._changed()

    def _on_health(self) -> None:
        assert self._lease is not None
        machine = self._lease.connection
        if machine.health.state is HealthState.UP and self.refusal is not None and self._lease.is_served:
            self._renewed.set()  # another experiment has logged in successfully
        if machine.health.state is not HealthState.DOWN:
            return
        if self._is_entered:
            self._be_troubled(machine.health.sentence)
        if machine.fault is not None and machine.fault.is_refusal:
            self._renewed.set()

    def _on_up(self) -> None:
        self.up.set()
        self._trouble = ""
        self._untold.clear()
        if self._shipping is None or self._shipping.done():
            self._shipping = asyncio.create_task(self._ship(), name=f"code to {self.entry.address.host}")

    def _on_down(self) -> None:
        self.up.clear()
        self.archive = self._aside = ""
        if self._shipping is not None:
            self._shipping.cancel()
        self._changed()

    # Its code

    async def _ship(self, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        try:
            if wrong := await trial_python.trouble(self.entry, self._python_version):
                return self.set_aside(wrong)
            self.archive = await (self._send_code() if self._shared is None else self._share(self._shared))
            self.code_error = self._aside = ""
        except (PlatformError, OSError) as error:
            return self.set_aside(str(error) if self._shared is not None else f"sending the code failed: {error}")
        except (InvalidInput, SubmitRejected) as error:
            self.code_error = str(error)
        self.first.set()
        self._changed()

    def note_start(self) -> None:
        """Notes that the machine has started a job."""
        self._refused_jobs.reset()

    def set_aside(self, why: str) -> None:
        """Excludes a machine that responds but starts no job, for a while; the others continue.

        The next attempt sends the code again, as it may be missing.
        """
        if why != self._aside:
            log.warning("%s takes no trials for a while: %s", self.entry.address.host, why)
        self.archive, self._aside = "", why
        if self._shipping is not None and self._shipping is not asyncio.current_task():
            self._shipping.cancel()
        again = self._ship(self._refused_jobs.next_wait())
        self._shipping = asyncio.create_task(again, name=f"code to {self.entry.address.host}, again")
        self.first.set()
        self._changed()

    async def _send_code(self) -> str:
        archive = await self._host.code()
        self.code_sha256 = await asyncio.to_thread(sha256_of, archive)
        target = f"{self.folder}/{archive.name}"
        await ship(self.machine, archive, target, self._tell_progress)
        return target

    # Shared storage

    async def _share(self, shared: SharedFolder) -> str:
        """The path of the code on shared storage, after the machine has mounted the same storage as this one."""
        mark = await shared.ready(now=True)
        self.shared_folder = shared.there(await use_storage(self.entry, shared, mark))
        return f"{self.shared_folder}/{shared.archive}"

    async def leave_storage(self, shared: SharedFolder) -> None:
        """Unmounts the shared storage of a stopped experiment; a failure is only logged."""
        try:
            failure = await leave_storage(self.entry, shared)
        except PlatformError as error:
            failure = str(error)
        if failure:
            log.warning("%s: its shared storage could not be unmounted: %s", self.entry.address.host, failure)

    def _explained(self, report: Observation) -> Observation:
        """The report on a trial. If the trial did not find its storage, it is checked again before the next trial."""
        if self._shared is None:
            return report
        explained = self._shared.explained(report, REMOTE_FIELD)
        if explained is not report and self.archive:
            self.set_aside(explained.message)
        return explained

    def _tell_progress(self, there: int, size: int) -> None:
        self._progress = f", {there / 1e6:.0f} of {size / 1e6:.0f} MB"

    @property
    def folder(self) -> str:
        """The folder of this experiment's service on the machine. Raises PlatformUnavailable."""
        greeting = self.machine.greeting
        if greeting is None:
            raise PlatformUnavailable(self.why, refused=True)
        return f"{greeting.folder}/{self._host.experiment_id}.{self._host.service}"


def _refusal(machine: Machine) -> BadCredentials:
    assert machine.fault is not None
    error = machine.fault.error(machine.address.host)
    assert isinstance(error, BadCredentials)
    return error
