"""The calls to PAI-DLC, one method each, and the meaning of its errors.

Experiments with the same access key share an account: a client and a rate limit. The vendor publishes no limits. Reads
and writes have separate limits, so that submissions do not delay observation; the service's flow control applies to
both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from nni_manager.domain.errors import BadCredentials, PlatformError, PlatformUnavailable
from nni_manager.platform_kit.connections import Connection
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.platforms.dlc.config import DlcConfig
from nni_manager.web_services.pacing import Pacing

#: Jobs per page of a list; the service may return fewer.
PAGE_SIZE = 100
_CONNECT_MS, _READ_MS = 5_000, 20_000
#: Prefixes of the codes with which Alibaba's gateways refuse a key, with any status; and of those for a missing right,
#: which may concern a single job.
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
#: Prefixes of the codes for a signature that is too old or from the future; and the code for a repeated one.
_WRONG_TIME, _DOUBLED = ("InvalidTimeStamp", "IllegalTimestamp"), "SignatureNonceUsed"
_MOST_WORDS = 300
T = TypeVar("T")
Item = Mapping[str, Any]


class DlcRefused(PlatformError):
    """A request that the service refuses for good; for requests about a job: for any reason. `status`: HTTP's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"PAI-DLC refused the request: {message} ({code})")
        self.status, self.code = status, code


class Throttled(PlatformUnavailable):
    """A request that flow control refused and that had no effect. `wait_s`: seconds to wait; 0: unknown."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("PAI-DLC's flow control refused a call; retrying soon", refused=True)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    jobs: Sequence[Item]
    #: Number of jobs on all pages.
    total: int


class DlcClient:
    """One method per call of the official SDK, which is imported with the first client (0.25 s).

    Its methods raise DlcRefused, Throttled, BadCredentials and PlatformUnavailable.
    """

    def __init__(self, config: DlcConfig, key_secret: str) -> None:
        from alibabacloud_pai_dlc20201203 import models
        from alibabacloud_pai_dlc20201203.client import Client
        from alibabacloud_tea_openapi.utils_models import Config
        from darabonba.runtime import RuntimeOptions

        scheme, _, host = config.host.rpartition("://")
        self._models: Any = models
        self._workspace = config.workspace_id
        self._secrets = SecretTexts(key_secret)
        self._options = RuntimeOptions(connect_timeout=_CONNECT_MS, read_timeout=_READ_MS, autoretry=False)
        self._sdk: Any = Client(
            Config(
                access_key_id=config.access_key_id,
                access_key_secret=key_secret,
                region_id=config.region,
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
        """The job with an id; None: it does not exist. The service may also answer with a refusal."""
        request = self._models.GetJobRequest(need_detail=False)
        try:
            found: Item = await self._call(
                lambda: self._sdk.get_job_with_options_async(id, request, {}, self._options), is_about_a_job=True
            )
        except DlcRefused as error:
            if error.status == 404:
                return None
            raise
        return found

    async def stop_job(self, id: str) -> None:
        stop = self._sdk.stop_job_with_options_async
        await self._call(lambda: stop(id, {}, self._options), is_about_a_job=True)

    async def find_instance_type(self, name: str) -> Item | None:
        request = self._models.ListEcsSpecsRequest(instance_types=name)
        answer = await self._call(lambda: self._sdk.list_ecs_specs_with_options_async(request, {}, self._options))
        found: list[Item] = [one for one in answer.get("EcsSpecs") or () if one.get("InstanceType") == name]
        return found[0] if found else None

    async def _call(self, call: Callable[[], Awaitable[Any]], *, is_about_a_job: bool = False) -> Any:
        """The service's raw response body. `is_about_a_job`: a missing right does not refuse the access key."""
        try:
            answer = await call()
            return answer.body.to_map()
        except Exception as error:
            raise self._translated(error, is_about_a_job) from None  # the SDK's own holds requests and signatures

    def _translated(self, error: Exception, is_about_a_job: bool) -> PlatformError:
        code = str(getattr(error, "code", "") or "")
        status = int(getattr(error, "statusCode", 0) or getattr(error, "status_code", 0) or 0)
        text = self._secrets.shown(str(getattr(error, "message", "") or error), _MOST_WORDS)
        if status == 429 or code.startswith(_THROTTLED):
            return Throttled(float(getattr(error, "retry_after", 0) or 0) / 1000)
        if code.startswith(_REFUSED_KEYS) or status == 401:
            return BadCredentials(f"PAI-DLC refuses the access key: {text}; correct accessKeyId and accessKeySecret")
        if not is_about_a_job and (status == 403 or code.startswith(_REFUSED_RIGHTS)):
            return BadCredentials(
                f"PAI-DLC refused an operation of the access key: {text}; check workspaceId and the key's rights"
            )
        if status == 409 and not is_about_a_job:
            return PlatformUnavailable(f"PAI-DLC is busy: {text} ({code})", refused=True)
        if (passing := _passing(code, text)) is not None:
            return passing
        if 400 <= status < 500 and status != 408:
            return DlcRefused(status, code, text)
        return PlatformUnavailable(f"PAI-DLC is unreachable: {text or code}", refused=_is_unsent(error))


def _passing(code: str, text: str) -> PlatformUnavailable | None:
    """The outage that a refused signature indicates; None: the signature is valid, or the key is not."""
    if code.startswith(_WRONG_TIME):
        sentence = f"PAI-DLC rejects the time of this machine's clock: {text}; set the clock"
        return PlatformUnavailable(sentence, refused=True)
    if code == _DOUBLED:  # for example repeated by a proxy; the first may have had an effect
        return PlatformUnavailable(f"PAI-DLC received a request twice: {text}", refused=False)
    return None


def _is_unsent(error: BaseException | None) -> bool:
    """Whether no connection was made, so that the call had no effect."""
    import aiohttp  # a dependency of the SDK

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, aiohttp.ClientConnectorError | asyncio.CancelledError):
            return isinstance(error, aiohttp.ClientConnectorError)
        error = error.__cause__ or error.__context__
    return False


#: Calls a second, and burst.
READS_A_SECOND, READ_BURST = 2.0, 5
WRITES_A_SECOND, WRITE_BURST = 3.0, 5
#: Seconds to wait after a refusal by flow control without a time.
_BACK_OFF_S = 5.0
#: Maximum seconds that a call waits for its turn.
_PATIENCE_S = 25.0
Verb = Callable[[DlcClient], Awaitable[T]]


class DlcAccount(Connection):
    """An account of PAI-DLC; its credentials are the section's access key."""

    def __init__(self, key: str, config: DlcConfig) -> None:
        super().__init__(key)
        self._config = config
        self._client: DlcClient | None = None
        self._reads = Pacing(calls=READS_A_SECOND, per_s=1.0, burst=READ_BURST)
        self._writes = Pacing(calls=WRITES_A_SECOND, per_s=1.0, burst=WRITE_BURST)

    async def check(self, credential: str) -> None:
        client, now_ms = DlcClient(self._config, credential), self._clock()
        try:
            await self._paced(self._reads, client, lambda it: it.list_jobs(tags={}, since_ms=now_ms, page=1, size=1))
        except DlcRefused as error:  # a foreign workspace refuses even lists
            raise BadCredentials(f"{error}; check accessKeyId, workspaceId and region") from error

    async def use(self, credential: str) -> None:
        self._client = DlcClient(self._config, credential)

    async def read(self, verb: Verb[T]) -> T:
        return await self._paced(self._reads, self._client, verb)

    async def write(self, verb: Verb[T]) -> T:
        return await self._paced(self._writes, self._client, verb)

    async def _paced(self, pacing: Pacing, client: DlcClient | None, verb: Verb[T]) -> T:
        assert client is not None, "a lease was admitted before"
        if not await pacing.turn_within(_PATIENCE_S):
            raise PlatformUnavailable("the rate limit for calls to PAI-DLC is used up; retrying soon", refused=True)
        try:
            answer = await verb(client)
        except Throttled as error:
            for one in (self._reads, self._writes):
                one.back_off(error.wait_s or _BACK_OFF_S)
            raise
        except PlatformUnavailable as error:
            self.note_down(str(error))
            raise
        except DlcRefused:
            self.note_up()
            raise
        self.note_up()
        return answer
