"""The account of a DLWorkspace dashboard: one method per call, shared by all experiments of the account.

The dashboard requires the password in every URL and answers many failures with 200. A list has only active jobs and
the newest others. If a query of its database fails, the answer is the same as for an empty result.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from nni_manager.domain.experiment import Json
from nni_manager.platforms.dlts.states import job_state
from nni_manager.web_services.account import Refused, Signature
from nni_manager.web_services.jobs import ListingAccount
from nni_manager.web_services.pacing import Pacing
from nni_manager.web_services.shared_list import SharedList

_FRESH_S = 1.0
#: Number of ended jobs in a list: at least this many, and more for each followed job.
_LEAST, _PER_JOB = 100, 2

#: Answers of a failed kill; others mean that the job is killed, or had ended.
_NOT_KILLED, _NOT_ALLOWED = "failed to kill", "unauthorized to kill"

log = logging.getLogger(__name__)

Entry = Mapping[str, Any]


def paces() -> dict[str, Pacing]:
    """Rate limits for calls. The dashboard has none of its own, but queries a database for every call."""
    return {"all": Pacing(calls=300, per_s=60, burst=60), "list": Pacing(calls=30, per_s=60, burst=5)}


class DltsAccount(ListingAccount[dict[str, Entry]]):
    """The account of a dashboard; credentials are passwords. `limits`: rate limits; `fresh_s`: see `SharedList`."""

    credential_statuses = (401, 403)

    def __init__(
        self,
        dashboard: str,
        cluster: str,
        team: str,
        email: str,
        *,
        limits: Mapping[str, Pacing] | None = None,
        fresh_s: float = _FRESH_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(
            key_of(dashboard, cluster, team, email),
            name=f"DLWorkspace at {dashboard}",
            base_url=f"{dashboard}api",
            paces=limits or paces(),
            transport=transport,
        )
        self._cluster = quote(cluster, safe="")
        self._team = team
        self._email = email
        self._list = SharedList(self._listed, fresh_s)
        self._gpu_type: str | None = None
        #: Ids of jobs that this account may not kill and that were logged.
        self._foreign: set[str] = set()

    async def signature_of(self, credential: str) -> Signature:
        self.secrets.keep(credential, quote(credential))
        # dashboards from before 2020 expect it as `token`
        return Signature(params={"email": self._email, "password": credential, "token": credential})

    async def try_out(self, signature: Signature) -> None:
        await self.ask("GET", "teams", signature=signature)

    async def teams(self) -> list[str]:
        """Names of the account's teams."""
        return [str(one.get("id")) for one in await self.ask_json("GET", "teams")]

    async def gpu_type(self) -> str:
        """The team's first GPU type in the cluster; empty: it has none."""
        if self._gpu_type is None:
            path = f"teams/{quote(self._team, safe='')}/clusters/{self._cluster}"
            self._gpu_type = _first_gpu_type(await self.ask_json("GET", path))
        return self._gpu_type

    async def submit(self, job: Json) -> str:
        """Submits the job; returns the reason of a refusal, empty: accepted."""
        answer = await self.ask_json("POST", f"clusters/{self._cluster}/jobs", json=dict(job))
        if isinstance(answer, dict) and answer.get("jobId"):
            return ""
        return self.secrets.redacted(str(answer.get("error") if isinstance(answer, dict) else answer))

    async def status(self, job_id: str) -> Entry | None:
        """The status of a job as a list entry; None: the job does not exist, or a query failed in the service."""
        try:
            answer = await self.ask_json("GET", f"clusters/{self._cluster}/jobs/{quote(job_id, safe='')}/status")
        except Refused as error:
            if error.status == 404:
                return None
            raise self.away(f"unexpectedly refused a query: {error}") from None
        return {"jobId": job_id, "jobStatus": answer.get("status"), "errorMsg": answer.get("message")}

    async def kill(self, job_ids: Sequence[str]) -> None:
        """Kills jobs. Ignores ended and unknown ones. Raises PlatformUnavailable, with the id of one that still runs.

        A job that this account may not kill is logged once: a retry would fail, too, and delay the others.
        """
        if not job_ids:
            return
        answers = await self._killed(job_ids)
        for job_id in job_ids:
            answer = answers.get(job_id)
            if answer == _NOT_ALLOWED:
                self._warn_of_foreign(job_id)
            elif answer == _NOT_KILLED or (answer is None and await self._runs(job_id)):
                raise self.away(f"did not kill the job {job_id}")

    async def _killed(self, job_ids: Sequence[str]) -> Mapping[str, Any]:
        """The answer to a kill of each job; unknown ones and failed lookups have none."""
        body = {"status": {job_id: "killing" for job_id in job_ids}}
        try:
            answer = await self.ask("POST", f"clusters/{self._cluster}/jobs/status", json=body)
        except Refused as error:
            if error.status != 404:
                raise self.away(f"unexpectedly refused a kill: {error}") from None
            return {}
        return _results(answer)

    async def _runs(self, job_id: str) -> bool:
        """Whether a job exists, and is neither over nor being killed."""
        entry = await self.status(job_id)
        native = str(entry and entry["jobStatus"])
        return entry is not None and native != "killing" and not job_state(native).is_final

    def _warn_of_foreign(self, job_id: str) -> None:
        if job_id not in self._foreign:
            self._foreign.add(job_id)
            log.warning(
                "DLWorkspace does not let %s kill job %s, which belongs to another account; kill it in the dashboard "
                "as its owner",
                self._email,
                job_id,
            )

    async def _listed(self) -> dict[str, Entry]:
        """The account's jobs in the team, by id."""
        limit = max(_LEAST, _PER_JOB * sum(self.followed.values()))
        path = f"v2/clusters/{self._cluster}/teams/{quote(self._team, safe='')}/jobs"
        answer = await self.ask_json("GET", path, pace="list", params={"limit": str(limit)})
        if not isinstance(answer, list):
            raise self.away("did not answer with a list of jobs")
        if None in answer:  # parts of the list that the service behind the dashboard could not supply
            raise self.away("could not read its database and returned an empty list")
        return {str(job["jobId"]): job for job in answer if isinstance(job, dict) and job.get("jobId")}


def key_of(dashboard: str, cluster: str, team: str, email: str) -> str:
    return f"dlts:{email}@{dashboard}{cluster}/{team}"


def _results(answer: httpx.Response) -> Mapping[str, Any]:
    """Results by job from a kill's answer: JSON, or JSON nested as text; empty: it has none."""
    try:
        told = json.loads(answer.json()["killing"])["result"]
    except (ValueError, KeyError, TypeError):
        return {}
    return told if isinstance(told, dict) else {}


def _first_gpu_type(answer: Any) -> str:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    try:
        kinds = json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        kinds = None
    return str(next(iter(kinds), "")) if isinstance(kinds, dict) else ""
