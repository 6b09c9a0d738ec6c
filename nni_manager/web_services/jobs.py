"""Jobs of a service that is polled over HTTP, with folders on storage that manager and jobs mount.

An adapter inherits `WebJobs` and adds the account, the storage, `submit`, `observe`, and how jobs are stopped. It
records an accepted job with `_accepted` and each report with `_noted`, so that an end is evaluated once.
"""

from __future__ import annotations

import abc
import asyncio
import json
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.confirmed_loss import APART_S, ConfirmedLoss
from nni_manager.platform_kit.contract import Capabilities, ConfigT, Host, Platform
from nni_manager.shared_storage.job_folders import JobFolders
from nni_manager.shared_storage.mounted_storage import MountedStorage
from nni_manager.web_services.account import WebAccount, WebLease
from nni_manager.web_services.shared_list import SharedList

log = logging.getLogger(__name__)

#: Maximum length of an unknown status in the log.
_MOST_SHOWN = 100


class StateTable:
    """Maps the service's statuses to job states. A status outside the table is UNKNOWN, which changes nothing, and is
    logged once.

    `states`: statuses that map to UNKNOWN are expected and not logged.
    """

    def __init__(self, service: str, states: Mapping[str, JobState]) -> None:
        self._service = service
        self._states = states
        self._named: set[str] = set()

    def state(self, word: str) -> JobState:
        state = self._states.get(word)
        if state is None and word not in self._named:
            self._named.add(word)
            shown = word[:_MOST_SHOWN]
            log.warning(
                "%s reported the unknown status %r of a job; the trial's status is unchanged", self._service, shown
            )
        return state or JobState.UNKNOWN


def loop_s() -> float:
    """Seconds of the running loop's clock."""
    return asyncio.get_running_loop().time()


ListT = TypeVar("ListT")


class ListingAccount(WebAccount, Generic[ListT]):
    """An account with one list of jobs for all experiments, long enough for all followed jobs."""

    #: Created by the adapter's account.
    _list: SharedList[ListT]

    async def close(self) -> None:
        await self._list.close()
        await super().close()

    async def jobs(self, not_before_s: float) -> ListT:
        """The account's newest jobs, of the experiment's team or user; see `SharedList`."""
        return await self._list.get(not_before_s)

    @cached_property
    def followed(self) -> dict[str, int]:
        """The number of jobs that each experiment follows on the account, by owner of the lease."""
        return {}


AccountT = TypeVar("AccountT", bound=ListingAccount[Any])


class WebJobs(Platform[ConfigT], Generic[AccountT, ConfigT]):
    """The base of adapters of services that are polled over HTTP."""

    capabilities = Capabilities(
        watches=False,
        reads_files=True,
        has_runner=True,
        is_read=True,
        ships_code=True,
        has_portal=True,
        slow_poll_s=5.0,
    )
    #: Seconds between two rounds that lack a job, after which it is lost.
    loss_apart_s: ClassVar[float] = APART_S

    def __init__(self, config: ConfigT, host: Host) -> None:
        super().__init__(config, host)
        self._owner = f"{host.experiment_id}/{host.service}"
        self._lease: WebLease[AccountT] = WebLease(
            host.connections, self.connection_key(config), self._owner, self._account, self._credential(config)
        )
        self._folders = JobFolders(host)
        self._loss = ConfirmedLoss(loop_s, apart_s=self.loss_apart_s)
        #: Time of the last accepted job, by the loop's clock: older lists lack it.
        self._accepted_s = float("-inf")
        #: Job name → the service's report of its end; kept until the job is forgotten.
        self._ended: dict[str, Observation] = {}

    @abc.abstractmethod
    def _account(self) -> AccountT:
        """A new account of this config."""

    @classmethod
    @abc.abstractmethod
    def _credential(cls, config: ConfigT) -> str:
        """The account's credential."""

    @abc.abstractmethod
    def _made_storage(self) -> MountedStorage:
        """The storage that this config's jobs and the manager share."""

    @abc.abstractmethod
    async def _stop(self, handles: Sequence[JobHandle]) -> None:
        """Stops jobs. Ignores ended and unknown ones."""

    def renew(self, config: ConfigT) -> None:
        super().renew(config)
        self._lease.renew(self._credential(config))

    async def __aenter__(self) -> Self:
        await self._lease.enter_checked()
        self._folders.enter(self._made_storage())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._folders.leave()
        self._lease.connection.followed.pop(self._owner, None)
        await self._lease.leave()

    def _accepted(self, spec: JobSpec, data: str) -> JobHandle:
        self._accepted_s = loop_s()
        return JobHandle(platform=self.config.platform, version=1, job_name=spec.name, data=data)

    def _missing(self, handle: JobHandle, message: str) -> Observation:
        """The report on a job that no source has in this round; LOST once that is confirmed."""
        name = handle.job_name
        if name in self._ended:
            return self._ended[name]
        is_lost = self._loss.is_lost(name, has_exit=self._folders.pull.has_ended(name))
        return Observation(state=JobState.LOST, message=message) if is_lost else Observation(state=JobState.UNKNOWN)

    def _noted(self, handle: JobHandle, report: Observation) -> Observation:
        if report.state.is_final:
            self._ended[handle.job_name] = report
        return report

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        return await self._folders.read(handle.job_name, name, offset, limit)

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        return await self._folders.files(handle.job_name)

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        running = [handle for handle in handles if handle.job_name not in self._ended]
        await self._folders.ask_to_stop(handle.job_name for handle in running)
        await self._stop(running)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        """Stops running jobs and forgets all. The service keeps jobs forever, and the user keeps the files."""
        await self._stop([handle for handle in handles if handle.job_name not in self._ended])
        for handle in handles:
            self._ended.pop(handle.job_name, None)
            self._loss.forget(handle.job_name)
            self._folders.forget(handle.job_name)

    async def close(self) -> None:
        await self._folders.storage.remove_shared()


def name_of(handle: JobHandle) -> str:
    """The service's name of a job; in databases of earlier versions it is an object."""
    return str(json.loads(handle.data)["name"]) if handle.data.startswith("{") else handle.data


def names_of(spec: JobSpec, separator: str) -> list[str]:
    """The possible names of a job: the documented one, and another if a foreign job has that."""
    return [spec.name, f"{spec.name}{separator}{spec.nonce[:8]}"] if spec.nonce else [spec.name]


async def all_of(calls: Iterable[Awaitable[object]]) -> None:
    """Awaits all of these calls, even after one has failed. Raises the first error."""
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error
