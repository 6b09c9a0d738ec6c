"""Submits each job once to a service that accepts duplicates and does not know our names.

A submission is recorded before it is sent, and again with the id from the answer. If the second record is missing, the
list is consulted. The list lags: a missing job may still appear, so it is sent again only after the maximum lag.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nni_manager.domain.clock import Clock
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit.payload import write_private
from nni_manager.platforms.dlc.account import DlcAccount, DlcClient, DlcRefused
from nni_manager.platforms.dlc.job import is_ours
from nni_manager.platforms.dlc.listing import JobList
from nni_manager.web_services.account import WebLease


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    #: Time of the last submission in milliseconds since the epoch.
    sent_ms: int
    #: Empty: the answer never arrived.
    job_id: str = ""


class Submissions:
    """The submissions of one service. `folder`: the service's in the experiment's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, job_name: str) -> Submission | None:
        try:
            return Submission(**json.loads(self._path(job_name).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # truncated by a power loss: sent, at an unknown time
            return Submission(sent_ms=round(self._path(job_name).stat().st_mtime * 1000))

    def put(self, job_name: str, submission: Submission) -> None:
        write_private(self._path(job_name), json.dumps(asdict(submission)).encode())

    def remove(self, job_name: str) -> None:
        self._path(job_name).unlink(missing_ok=True)

    def _path(self, job_name: str) -> Path:
        return self._folder / f"{job_name}.json"


#: Seconds after which a job missing from the list counts as not submitted; the vendor guarantees nothing.
LIST_LAG_S = 20.0
#: Seconds between two checks of the list.
_LOOK_S = 2.0


class Submitting:
    """The submissions of one service of an experiment. `clock`: milliseconds since the epoch."""

    def __init__(
        self, lease: WebLease[DlcAccount], jobs: JobList, submissions: Submissions, clock: Clock, list_lag_s: float
    ) -> None:
        self._lease, self._jobs, self._submissions = lease, jobs, submissions
        self._clock, self._lag_s = clock, list_lag_s

    async def known(self, spec: JobSpec) -> Submission | None:
        """The recorded submission of a job, or the one that the list has now; None: the job must be sent.

        Raises PlatformUnavailable.
        """
        sent = await asyncio.to_thread(self._submissions.get, spec.name)
        if sent is None and not spec.is_repeat:
            return None
        if sent is not None and sent.job_id:
            return sent
        # without a record it was not sent from this folder: checking once is enough
        found = await self._find(spec, sent or Submission(sent_ms=0))
        if found is not None:
            await asyncio.to_thread(self._submissions.put, spec.name, found)
        return found

    async def send(self, spec: JobSpec, body: Mapping[str, Any]) -> Submission:
        """Sends a job. Raises SubmitRejected, BadCredentials or PlatformUnavailable."""
        before = await asyncio.to_thread(self._submissions.get, spec.name)

        async def create(client: DlcClient) -> str:
            await self._note(spec.name)  # now, not when it began to wait for the rate limit
            return await client.create_job(body)

        try:
            id = await self._lease.call(lambda account: account.write(create))
        except (DlcRefused, BadCredentials, PlatformUnavailable) as error:
            if isinstance(error, PlatformUnavailable) and not error.refused:
                await self._note(spec.name)  # it may have been accepted until now
                raise
            await asyncio.to_thread(self._take_back, spec.name, before)
            if isinstance(error, DlcRefused):
                raise SubmitRejected(str(error)) from error
            raise
        return await self._note(spec.name, id)

    async def _note(self, job_name: str, id: str = "") -> Submission:
        submission = Submission(sent_ms=self._clock(), job_id=id)
        await asyncio.to_thread(self._submissions.put, job_name, submission)
        return submission

    def _take_back(self, job_name: str, before: Submission | None) -> None:
        """Restores the earlier record of a job that was certainly not accepted."""
        if before is None:
            self._submissions.remove(job_name)
        else:
            self._submissions.put(job_name, before)

    async def _find(self, spec: JobSpec, sent: Submission) -> Submission | None:
        since_ms = sent.sent_ms or spec.intended_ms or self._clock()
        while True:
            waited_s = (self._clock() - sent.sent_ms) / 1000
            found = await self._jobs.read(since_ms, asyncio.get_running_loop().time())
            for id, item in found.items():
                if is_ours(item, spec):
                    return Submission(sent_ms=since_ms, job_id=id)
            if waited_s > self._lag_s or waited_s < 0:
                return None
            await asyncio.sleep(min(_LOOK_S, self._lag_s / 2))
