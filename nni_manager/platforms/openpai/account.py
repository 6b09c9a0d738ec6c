"""An account of an OpenPAI cluster: one method per call, shared by all experiments that use the account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import yaml

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.experiment import Json
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.web_services.account import Refused, Signature
from nni_manager.web_services.jobs import ListingAccount
from nni_manager.web_services.pacing import Pacing
from nni_manager.web_services.shared_list import SharedList

#: Prefix of every job's name, by which the list is filtered.
PREFIX = "nni_exp_"
#: Seconds during which calls share one list.
_FRESH_S = 1.0
#: Number of entries in a list: minimum, maximum, and number per followed job.
_LEAST, _MOST, _PER_JOB = 200, 50_000, 2
_YAML = {"Content-Type": "text/yaml"}

#: The dumper of YAML, in C if available: jobs are numerous.
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

Entry = Mapping[str, Any]


def paces() -> dict[str, Pacing]:
    """Rate limits below the per-user limits of the default configuration: 600 calls a minute, 120 of them lists, and
    3600 jobs an hour. If an administrator allows less, the service answers 429."""
    return {
        "all": Pacing(calls=500, per_s=60, burst=60),
        "list": Pacing(calls=50, per_s=60, burst=8),
        "submit": Pacing(calls=3400, per_s=3600, burst=100),
    }


class OthersToken(BadCredentials):
    """The token belongs to another user than the section's; its jobs would be missing from this user's list.

    `sentence`: what is wrong; `fix`: what to do.
    """

    def __init__(self, user: str, owner: str) -> None:
        self.sentence = f"the token belongs to {owner}, but username is {user}"
        self.fix = f"set username to {owner}, or use a token of {user}"
        super().__init__(f"{self.sentence}; {self.fix}")


class OpenpaiAccount(ListingAccount["Listing"]):
    """The account of a user on a cluster; credentials are JSON with either `token` or `password`.

    `limits`: other rate limits; `fresh_s`: see `SharedList`.
    """

    def __init__(
        self,
        host: str,
        user: str,
        *,
        limits: Mapping[str, Pacing] | None = None,
        fresh_s: float = _FRESH_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(
            key_of(host, user),
            name=f"OpenPAI at {host}",
            base_url=f"{host}/rest-server",
            paces=limits or paces(),
            transport=transport,
        )
        self._user = user
        self._list = SharedList(self._listed, fresh_s)
        #: Number of additional entries to request: a list lacked a running job.
        self._longer = 1
        #: Password → the token issued for it.
        self._tokens: dict[str, str] = {}
        self._password = ""

    # Credentials

    async def signature_of(self, credential: str) -> Signature:
        told = json.loads(credential)
        token, password = told.get("token"), told.get("password")
        self.secrets.keep(token or "", password or "")
        if token:
            return _bearer(token)
        if password not in self._tokens:
            self._tokens[password] = await self._token_for(password)
        return _bearer(self._tokens[password])

    async def use(self, credential: str) -> None:
        await super().use(credential)
        self._password = json.loads(credential).get("password") or ""

    async def signed_anew(self) -> bool:
        """Requests another token for the password, as tokens expire. False: it has no password."""
        if not self._password:
            return False
        self._tokens.pop(self._password, None)
        self.signature = await self.signature_of(json.dumps({"password": self._password}))
        return True

    async def _token_for(self, password: str) -> str:
        form = {"username": self._user, "password": password}
        try:
            answer = await self.ask_json("POST", "api/v2/authn/basic/login", data=form, signature=Signature())
        except Refused as error:
            raise BadCredentials(f"{self.name} refuses the password of {self._user}: {error.words}") from None
        token = answer.get("token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise self.away("answered a login without a token")
        self.secrets.keep(token)
        return token

    async def try_out(self, signature: Signature) -> None:
        for path in ("api/v2/tokens/check", f"api/v2/users/{quote(self._user, safe='')}"):
            try:
                return self._see_that_it_is_ours(await self.ask_json("GET", path, signature=signature))
            except Refused as error:
                refused = error
                if error.status != 404:  # the first route is undocumented
                    break
        raise BadCredentials(f"{self.name} refuses the credentials of {self._user}: {refused.words}")

    def _see_that_it_is_ours(self, answer: Any) -> None:
        """Compares the token's user with the section's, case-sensitively like the service. Raises OthersToken."""
        owner = answer.get("username") if isinstance(answer, dict) else None
        if owner and owner != self._user:
            raise OthersToken(self._user, str(owner))

    # The cluster

    async def info(self) -> Any:
        """The cluster's description of itself. Needs no credentials."""
        return await self.ask_json("GET", "api/v2/info", signature=Signature())

    async def user(self) -> Any:
        return await self.ask_json("GET", f"api/v2/users/{quote(self._user, safe='')}")

    async def storages(self) -> dict[str, bool]:
        """The storages that the account may use: name → whether all users share its files, instead of each having a
        folder."""
        answer = await self.ask_json("GET", "api/v2/storages")
        return {str(one.get("name")): one.get("share") is not False for one in answer.get("storages", [])}

    # Jobs

    async def submit(self, job: Json) -> None:
        """Submits a job. Raises Refused."""
        text: str = await asyncio.to_thread(_dumped, job)
        await self.ask("POST", "api/v2/jobs", pace="submit", content=text.encode(), headers=_YAML)

    def submit_wait_s(self) -> float:
        """Seconds until another job may be submitted."""
        pacing = self._paces.get("submit")
        return 0.0 if pacing is None else pacing.wait_s()

    async def config(self, name: str) -> Any | None:
        """The configuration of a job as it was submitted; None: the job or its configuration does not exist."""
        try:
            answer = await self.ask("GET", f"{self._job(name)}/config")
        except Refused as error:
            _require_missing(error)
            return None
        try:
            return await asyncio.to_thread(yaml.safe_load, answer.text)
        except yaml.YAMLError:
            raise self.away(f"returned an unreadable configuration of {name}") from None

    async def detail(self, name: str) -> Entry | None:
        """The `jobStatus` of a job, with its name; None: the job does not exist."""
        try:
            answer = await self.ask_json("GET", self._job(name))
        except Refused as error:
            _require_missing(error)
            return None
        return {**answer.get("jobStatus", {}), "name": name}

    async def stop(self, name: str) -> None:
        """Stops a job. Ignores jobs that have ended or do not exist."""
        try:
            await self.ask("PUT", f"{self._job(name)}/executionType", json={"value": "STOP"})
        except Refused as error:
            _require_missing(error)

    def _job(self, name: str) -> str:
        return f"api/v2/jobs/{quote(self._user, safe='')}~{quote(name, safe='')}"

    # The list

    def note_overlooked(self) -> None:
        """Makes the next lists longer: the last one lacked an existing job."""
        self._longer = min(2 * self._longer, _MOST)

    async def _listed(self) -> Listing:
        limit = min(max(_LEAST, _PER_JOB * sum(self.followed.values())) * self._longer, _MOST)
        params = {
            "username": self._user,
            "keyword": PREFIX,
            "order": "submissionTime,DESC",
            "offset": "0",
            "limit": str(limit),
        }
        answer = await self.ask_json("GET", "api/v2/jobs", pace="list", params=params)
        entries = answer.get("data") if isinstance(answer, dict) else answer
        if not isinstance(entries, list):
            raise self.away("did not answer with a list of jobs")
        return Listing(
            {str(entry["name"]): entry for entry in entries if entry.get("username") == self._user},
            is_cut_off=len(entries) >= limit,
        )


class Listing(NamedTuple):
    """The entries of a list of jobs, by name. `is_cut_off`: there may be more."""

    entries: Mapping[str, Entry]
    is_cut_off: bool


def key_of(host: str, user: str) -> str:
    return f"openpai:{user}@{host}"


def credential_of(config: OpenpaiConfig) -> str:
    """The credential in a section, as JSON. Secret."""
    given = {"token": config.token, "password": config.password}
    return json.dumps({name: value for name, value in given.items() if value})


def _bearer(token: str) -> Signature:
    return Signature(headers={"Authorization": f"Bearer {token}"})


def _require_missing(error: Refused) -> None:
    if error.status != 404:
        raise PlatformUnavailable(f"OpenPAI unexpectedly refused a request: {error}") from None


def _dumped(job: Json) -> str:
    """The text of a job. Not in braces: OpenPAI masks secrets in a line that begins with their key."""
    form: dict[str, Any] = {"default_flow_style": False, "sort_keys": False, "allow_unicode": True, "width": 10**9}
    return str(yaml.dump(dict(job), Dumper=_DUMPER, **form))
