"""The verbs. A job is the trial runner with the user's command; it posts results to the manager's trial listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx

from nni_hive.config import HiveConfig
from nni_hive.connection import HiveConnection
from nni_hive.states import UNHEARD_OF, job_report
from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, NotFound, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.connections import Lease
from nni_manager.platform_kit.contract import Capabilities, Host, NoRoom, Platform, PreflightFinding, Room, Severity
from nni_manager.platform_kit.payload import runner_archive
from trial_runner import protocol

_RUNNER = "runner.pyz"
_ASK_FOR_ROOM_S = 1.0
_FULL = Wait(code=WaitCode.QUOTA, sentence="the Hive has no free slot for this account")


class HivePlatform(Platform[HiveConfig]):
    """One group of jobs on a Hive, named after the experiment."""

    capabilities = Capabilities(
        watches=False, reads_files=True, has_runner=True, ships_code=True, has_portal=True, slow_poll_s=5.0
    )
    changeable = frozenset({"token"})

    def __init__(self, config: HiveConfig, host: Host) -> None:
        super().__init__(config, host)
        self._group = f"/v1/groups/{host.experiment_id}"
        self._token = config.token
        self._entered = AsyncExitStack()
        self._lease: Lease[HiveConnection] | None = None
        self._asking_for_room: asyncio.Task[None] | None = None

    @classmethod
    def connection_key(cls, config: HiveConfig) -> str:
        return f"hive:{config.account}@{config.url}"

    async def __aenter__(self) -> Self:
        self._lease = await self._entered.enter_async_context(self._leased())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.want(0)
        self._lease = None
        await self._entered.aclose()

    async def preflight(self) -> Sequence[PreflightFinding]:
        subject = f"account {self.config.account}"
        try:
            async with self._leased() as lease:
                await lease.use()
        except BadCredentials as error:
            return [PreflightFinding(severity=Severity.WRONG, subject=subject, sentence=str(error))]
        except PlatformUnavailable as error:
            return [PreflightFinding(severity=Severity.AWAY, subject=subject, sentence=str(error))]
        return [PreflightFinding(severity=Severity.FINE, subject=subject, sentence="the Hive accepts its token")]

    # Room

    def room(self) -> Room:
        free = self._lease.connection.free if self._lease is not None else None
        return Room(free=free, why=_FULL if free == 0 else None)

    def want(self, jobs: int) -> None:
        """A Hive tells of room with every answer; while trials wait for it, it is asked for that alone."""
        if jobs and self._asking_for_room is None:
            name = f"room of {self.host.experiment_id}/{self.host.service}"
            self._asking_for_room = asyncio.create_task(self._ask_for_room(), name=name)
        elif not jobs and self._asking_for_room is not None:
            self._asking_for_room.cancel()
            self._asking_for_room = None

    async def _ask_for_room(self) -> None:
        while True:
            before = self.room().free
            try:
                await self._call("GET", "/v1/room")
            except (PlatformUnavailable, BadCredentials):
                pass  # the next submission raises it, too
            if self.room().free != before:
                self.host.wake("")
            await asyncio.sleep(_ASK_FOR_ROOM_S)

    # Verbs

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        body = {
            "group": spec.experiment_id,
            "tag": spec.nonce,
            "command": ["python3", _RUNNER],
            "grace_s": spec.grace_period_s,
            "environment": _environment(spec),
        }
        answer = await self._call("PUT", f"/v1/jobs/{spec.name}", json=body)
        if answer.status_code == 422:  # the group has no runner yet, or not any more
            await self._call("PUT", f"{self._group}/files/{_RUNNER}", content=runner_archive())
            answer = await self._call("PUT", f"/v1/jobs/{spec.name}", json=body)
        if answer.status_code == 429:
            return NoRoom(why=_FULL)
        if answer.is_error or answer.json()["tag"] != spec.nonce:
            raise SubmitRejected(f"the Hive has another job named {spec.name}, or refuses it: {answer.text[:200]}")
        return JobHandle(platform="hive", version=1, job_name=spec.name)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        jobs = (await self._call("GET", f"{self._group}/jobs")).json()["jobs"]
        return {handle: self._report(jobs.get(handle.job_name), handle.job_name) for handle in handles}

    def _report(self, job: dict[str, Any] | None, name: str) -> Observation:
        return UNHEARD_OF if job is None else job_report(job, f"{self.config.url}/jobs/{name}")

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        names = [handle.job_name for handle in handles]
        await self._call("POST", f"{self._group}/stop", json={"names": names, "grace_s": grace_period_s})

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        await self._call("POST", f"{self._group}/forget", json={"names": [handle.job_name for handle in handles]})

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        if name not in protocol.LOG_FILES:
            raise NotFound(f"{handle.job_name} has no file {name}")
        path, params = f"{self._group}/jobs/{handle.job_name}/{name}", {"offset": offset, "limit": limit}
        answer = await self._call("GET", path, params=params)
        if answer.status_code == 404:
            raise NotFound(f"{handle.job_name} has no file {name}")
        return answer.content

    async def close(self) -> None:
        await self._call("DELETE", f"{self._group}/files")

    async def clean(self, job_names: Sequence[str]) -> None:
        if self._lease is not None:  # the experiment is at work, and these jobs were given up while the Hive was away
            await self._call("POST", f"{self._group}/stop", json={"names": list(job_names), "grace_s": 0})
            return
        async with self._leased() as lease:
            await self._call("DELETE", self._group, lease=lease)

    # The connection

    @asynccontextmanager
    async def _leased(self) -> AsyncIterator[Lease[HiveConnection]]:
        config, key = self.config, self.connection_key(self.config)
        owner = f"{self.host.experiment_id}/{self.host.service}"

        def make() -> HiveConnection:
            return HiveConnection(key, config.url, config.account)

        async with self.host.connections.lease(key, owner, make, config.token) as lease:
            yield lease

    async def _call(
        self, method: str, path: str, *, lease: Lease[HiveConnection] | None = None, **options: Any
    ) -> httpx.Response:
        lease = lease or self._lease
        if lease is None:
            raise PlatformUnavailable("the Hive is not connected", refused=True)
        if self._token != self.config.token:  # `renew` has set another
            self._token = self.config.token
            await lease.renew(self._token)
        try:
            return await (await lease.use()).call(method, path, **options)
        except BadCredentials as error:
            await lease.refused(error)  # raises, unless another experiment's token is good
            return await (await lease.use()).call(method, path, **options)


def _environment(spec: JobSpec) -> dict[str, str]:
    """Variables that the runner needs; the Hive adds PATH, and says where the folder of the job is."""
    return {
        protocol.ENV_COMMAND: spec.command,
        protocol.ENV_GRACE_S: f"{spec.grace_period_s:g}",
        **spec.runner_environment,
        **spec.protocol_environment,
        protocol.ENV_PLATFORM: "hive",
        protocol.ENV_SYSTEM_DIR: "$HIVE_JOB/nni",
        protocol.ENV_CHANNEL: protocol.PUSH,
        protocol.ENV_CODE: "fetch",
    }
