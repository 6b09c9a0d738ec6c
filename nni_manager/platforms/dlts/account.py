"""The account of a DLWorkspace dashboard: a method for each remote call, shared by all experiments of the account.

The dashboard wants the password in every address, answers many failures with 200, and a list holds what is active and
the newest others only. A query of its database that fails is answered as if nothing had been found.
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
#: Ended jobs of a list: so many at least, and for each job that is followed.
_LEAST, _PER_JOB = 100, 2

#: The answers of a kill that did not happen; others say that the job is killed, or that it was over.
_NOT_KILLED, _NOT_ALLOWED = "failed to kill", "unauthorized to kill"

log = logging.getLogger(__name__)

Entry = Mapping[str, Any]


def paces() -> dict[str, Pacing]:
    """The paces of calls: the dashboard has no limits of its own; it asks a database for every call."""
    return {"all": Pacing(calls=300, per_s=60, burst=60), "list": Pacing(calls=30, per_s=60, burst=5)}


class DltsAccount(ListingAccount[dict[str, Entry]]):
    """The account of a dashboard; credentials are passwords. `limits`: other paces; `fresh_s`: see `SharedList`."""

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
        #: Ids of jobs that this account may not kill, and that were logged.
        self._foreign: set[str] = set()

    async def signature_of(self, credential: str) -> Signature:
        self.secrets.keep(credential, quote(credential))
        # dashboards of before 2020 want it as `token`
        return Signature(params={"email": self._email, "password": credential, "token": credential})

    async def try_out(self, signature: Signature) -> None:
        await self.ask("GET", "teams", signature=signature)

    async def teams(self) -> list[str]:
        """The names of the teams that the account belongs to."""
        return [str(one.get("id")) for one in await self.ask_json("GET", "teams")]

    async def gpu_type(self) -> str:
        """The team's first type of GPU in the cluster; empty where it has none."""
        if self._gpu_type is None:
            path = f"teams/{quote(self._team, safe='')}/clusters/{self._cluster}"
            self._gpu_type = _first_gpu_type(await self.ask_json("GET", path))
        return self._gpu_type

    async def submit(self, job: Json) -> str:
        """Submits the job; answers the reason of a refusal, empty: it was accepted."""
        answer = await self.ask_json("POST", f"clusters/{self._cluster}/jobs", json=dict(job))
        if isinstance(answer, dict) and answer.get("jobId"):
            return ""
        return self.secrets.redacted(str(answer.get("error") if isinstance(answer, dict) else answer))

    async def status(self, job_id: str) -> Entry | None:
        """The status of a job in the form of a list entry; None: there is no such job, or a query failed there."""
        try:
            answer = await self.ask_json("GET", f"clusters/{self._cluster}/jobs/{quote(job_id, safe='')}/status")
        except Refused as error:
            if error.status == 404:
                return None
            raise self.away(f"refuses what it should not: {error}") from None
        return {"jobId": job_id, "jobStatus": answer.get("status"), "errorMsg": answer.get("message")}

    async def kill(self, job_ids: Sequence[str]) -> None:
        """Kills jobs. Quiet for ended and unknown ones. Raises PlatformUnavailable, with the id of one that runs on.

        A job that this account may not kill is logged once: asking again would not help, and hold up the others.
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
        """The answer of a kill for each job; unknown ones, and all that could not be looked up, have none."""
        body = {"status": {job_id: "killing" for job_id in job_ids}}
        try:
            answer = await self.ask("POST", f"clusters/{self._cluster}/jobs/status", json=body)
        except Refused as error:
            if error.status != 404:
                raise self.away(f"refuses what it should not: {error}") from None
            return {}
        return _results(answer)

    async def _runs(self, job_id: str) -> bool:
        """Whether a job is there, and neither over nor being killed."""
        entry = await self.status(job_id)
        native = str(entry and entry["jobStatus"])
        return entry is not None and native != "killing" and not job_state(native).is_final

    def _warn_of_foreign(self, job_id: str) -> None:
        if job_id not in self._foreign:
            self._foreign.add(job_id)
            log.warning(
                "DLWorkspace does not let %s kill the job %s, which is another account's; kill it in the dashboard as "
                "its owner",
                self._email,
                job_id,
            )

    async def _listed(self) -> dict[str, Entry]:
        """The account's jobs in the team by their ids."""
        limit = max(_LEAST, _PER_JOB * sum(self.followed.values()))
        path = f"v2/clusters/{self._cluster}/teams/{quote(self._team, safe='')}/jobs"
        answer = await self.ask_json("GET", path, pace="list", params={"limit": str(limit)})
        if not isinstance(answer, list):
            raise self.away("answered with something that is no list of jobs")
        if None in answer:  # parts of the list that the service behind the dashboard did not have
            raise self.away("could not read its database, and answered with an empty list")
        return {str(job["jobId"]): job for job in answer if isinstance(job, dict) and job.get("jobId")}


def key_of(dashboard: str, cluster: str, team: str, email: str) -> str:
    return f"dlts:{email}@{dashboard}{cluster}/{team}"


def _results(answer: httpx.Response) -> Mapping[str, Any]:
    """The results by job of an answer to a kill: JSON, in which another answer stands as text; empty: it has none."""
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
