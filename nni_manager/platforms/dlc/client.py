"""The wire of PAI-DLC: one method per call of its official SDK, and what its errors mean. No policy.

The SDK is imported with the first client: it takes a quarter of a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.platform_kit.secret_texts import SecretTexts

log = logging.getLogger(__name__)

#: Jobs on a page of a list; the service may give fewer.
PAGE_SIZE = 100
_CONNECT_MS, _READ_MS = 5_000, 20_000
#: Beginnings of the codes with which Alibaba's gateways refuse a key, whatever the status; and a right, which may be
#: missing for one job alone.
_REFUSED_KEYS = (
    "InvalidAccessKeyId",
    "InvalidAccessKeySecret",
    "SignatureDoesNotMatch",
    "InvalidSecurityToken",
    "IncompleteSignature",
    "MissingAccessKeyId",
)
_REFUSED_RIGHTS = ("Forbidden", "NoPermission", "UserNotAuthorized")
_THROTTLED = "Throttling"
_MOST_WORDS = 300
T = TypeVar("T")
Item = Mapping[str, Any]


class DlcRefused(PlatformError):
    """A request that the service will never carry out; of one about a job, whatever the reason is. `status`: HTTP's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"PAI-DLC refuses it: {message} ({code})")
        self.status, self.code = status, code


class Throttled(PlatformUnavailable):
    """A request that flow control refused, without an effect. `wait_s`: seconds to wait; 0: unknown."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("PAI-DLC's flow control refuses calls for a moment; they are made again", refused=True)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    jobs: Sequence[Item]
    #: The number of jobs on all pages.
    total: int


class DlcClient(Protocol):
    """The calls that an account makes. Raise DlcRefused, Throttled, BadCredentials and PlatformUnavailable."""

    async def create_job(self, body: Mapping[str, Any]) -> str: ...
    async def list_jobs(self, *, tags: Mapping[str, str], since_ms: int, page: int, size: int = PAGE_SIZE) -> Page: ...
    async def get_job(self, id: str) -> Item | None: ...
    async def stop_job(self, id: str) -> None: ...
    async def delete_job(self, id: str) -> None: ...
    async def find_instance_type(self, name: str) -> Item | None: ...


class SdkClient:
    """A client by the official SDK. `endpoint`: host, perhaps with scheme and port; empty: the region's own."""

    def __init__(self, *, region: str, endpoint: str, key_id: str, key_secret: str, workspace: str | None) -> None:
        from alibabacloud_pai_dlc20201203 import models
        from alibabacloud_pai_dlc20201203.client import Client
        from alibabacloud_tea_openapi.utils_models import Config
        from darabonba.runtime import RuntimeOptions

        scheme, _, host = endpoint.rpartition("://")
        self._models: Any = models
        self._workspace = workspace
        self._secrets = SecretTexts(key_secret)
        self._options = RuntimeOptions(connect_timeout=_CONNECT_MS, read_timeout=_READ_MS, autoretry=False)
        self._sdk: Any = Client(
            Config(
                access_key_id=key_id,
                access_key_secret=key_secret,
                region_id=region,
                endpoint=host or None,
                protocol=scheme or "https",
                user_agent="nni-manager",
            )
        )

    async def create_job(self, body: Mapping[str, Any]) -> str:
        request = self._models.CreateJobRequest().from_map(dict(body))
        answer = await self._call(lambda: self._sdk.create_job_with_options_async(request, {}, self._options))
        return str(answer["JobId"])

    async def list_jobs(self, *, tags: Mapping[str, str], since_ms: int, page: int, size: int = PAGE_SIZE) -> Page:
        since = datetime.fromtimestamp(since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        request = self._models.ListJobsRequest(
            tags=dict(tags),
            start_time=since,
            page_number=page,
            page_size=size,
            workspace_id=self._workspace,
            sort_by="GmtCreateTime",
            order="desc",
        )
        answer = await self._call(lambda: self._sdk.list_jobs_with_options_async(request, {}, self._options))
        jobs = [job for job in answer.get("Jobs") or () if isinstance(job, Mapping)]
        return Page(jobs=jobs, total=int(answer.get("TotalCount") or 0))

    async def get_job(self, id: str) -> Item | None:
        """The job of an id; None: there is no such job. The service may answer another refusal for it, too."""
        request = self._models.GetJobRequest(need_detail=False)
        try:
            found: Item = await self._call_about_a_job(
                lambda: self._sdk.get_job_with_options_async(id, request, {}, self._options)
            )
        except DlcRefused as error:
            if error.status == 404:
                return None
            raise
        return found

    async def stop_job(self, id: str) -> None:
        await self._call_about_a_job(lambda: self._sdk.stop_job_with_options_async(id, {}, self._options))

    async def delete_job(self, id: str) -> None:
        await self._call_about_a_job(lambda: self._sdk.delete_job_with_options_async(id, {}, self._options))

    async def find_instance_type(self, name: str) -> Item | None:
        request = self._models.ListEcsSpecsRequest(instance_types=name)
        answer = await self._call(lambda: self._sdk.list_ecs_specs_with_options_async(request, {}, self._options))
        found: list[Item] = [one for one in answer.get("EcsSpecs") or () if one.get("InstanceType") == name]
        return found[0] if found else None

    async def _call_about_a_job(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """As `_call`; a missing right for this job does not refuse the access key."""
        return await self._call(call, is_about_a_job=True)

    async def _call(self, call: Callable[[], Awaitable[Any]], *, is_about_a_job: bool = False) -> Any:
        """The body of an answer as the service wrote it."""
        try:
            answer = await call()
            return answer.body.to_map()
        except Exception as error:
            raise self._translated(error, is_about_a_job) from None  # the SDK's own holds requests, and signatures

    def _translated(self, error: Exception, is_about_a_job: bool) -> PlatformError:
        code, status = str(getattr(error, "code", "") or ""), int(getattr(error, "statusCode", 0) or _status(error))
        text = self._secrets.shown(str(getattr(error, "message", "") or error), _MOST_WORDS)
        if status == 429 or code.startswith(_THROTTLED):
            return Throttled(float(getattr(error, "retry_after", 0) or 0) / 1000)
        if code.startswith(_REFUSED_KEYS) or status == 401:
            return BadCredentials(f"PAI-DLC refuses accessKeyId or accessKeySecret: {text}; give others")
        if not is_about_a_job and (status == 403 or code.startswith(_REFUSED_RIGHTS)):
            return BadCredentials(
                f"PAI-DLC does not let the access key do it: {text}; look at workspaceId and its rights"
            )
        if 400 <= status < 500:
            return DlcRefused(status, code, text)
        return PlatformUnavailable(f"PAI-DLC cannot be asked: {text or code}", refused=_is_unsent(error))


def _status(error: Exception) -> int:
    return getattr(error, "status_code", 0) or 0


def _is_unsent(error: BaseException | None) -> bool:
    """Whether no connection was made, so that the call had no effect."""
    import aiohttp  # the SDK's own

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, aiohttp.ClientConnectorError | asyncio.CancelledError):
            return isinstance(error, aiohttp.ClientConnectorError)
        error = error.__cause__ or error.__context__
    return False
