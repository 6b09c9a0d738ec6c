"""The calls to Azure Machine Learning, one method each, and the tokens of Microsoft Entra that authorize them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from nni_manager.domain.errors import BadCredentials
from nni_manager.domain.experiment import Json
from nni_manager.platform_kit.secret_texts import SecretTexts
from nni_manager.web_services.account import Refused, Signature, WebAccount
from nni_manager.web_services.pacing import Pacing

STORAGE_SCOPE = "https://storage.azure.com/.default"
_MOST_WORDS = 300
#: Variables of the manager's environment with secrets that azure-identity logs in with.
_SECRET_VARIABLES = ("AZURE_CLIENT_SECRET", "AZURE_PASSWORD", "AZURE_CLIENT_CERTIFICATE_PASSWORD")


class Tokens:
    """Tokens from azure-identity, which is imported on first use.

    `authority`: host of a sovereign cloud's Entra; empty: the public cloud's.
    """

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._credential: Any = None

    async def token(self, scope: str) -> str:
        """A token for a scope. Raises BadCredentials."""
        from azure.core.exceptions import AzureError
        from azure.identity.aio import DefaultAzureCredential

        if self._credential is None:
            options = {"authority": self._authority} if self._authority else {}
            self._credential = DefaultAzureCredential(**options)
        try:
            return str((await self._credential.get_token(scope)).token)
        except AzureError as error:
            secrets = SecretTexts(*filter(None, map(os.environ.get, _SECRET_VARIABLES)))
            first = secrets.shown(str(error).strip().partition("\n")[0], _MOST_WORDS)
            raise BadCredentials(
                f"Azure issued no token: {first}; run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and"
                " AZURE_CLIENT_SECRET for the manager"
            ) from None

    async def close(self) -> None:
        credential, self._credential = self._credential, None
        if credential is not None:
            await credential.close()


API_VERSION = "2025-12-01"
#: Calls a second, and burst: a fair share of Azure's limits (reads 250, 25 a second; writes 200, 10 a second).
PACES: Mapping[str, tuple[float, int]] = {"read": (5.0, 50), "write": (3.0, 30)}
#: Number of list pages to read; jobs on later pages are queried individually.
_MOST_PAGES = 20


class AmlAccount(WebAccount):
    """The account of one workspace. `resource`: its id, ``/subscriptions/…``."""

    def __init__(
        self,
        key: str,
        *,
        endpoint: str,
        resource: str,
        tokens: Tokens,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        paces = {name: Pacing(calls=rate, per_s=1.0, burst=burst) for name, (rate, burst) in PACES.items()}
        super().__init__(key, name="Azure ML", base_url=endpoint + resource, paces=paces, transport=transport)
        self.resource = resource
        self._endpoint = endpoint
        self._tokens = tokens

    async def close(self) -> None:
        await super().close()
        await self._tokens.close()

    async def signature_of(self, credential: str) -> Signature:
        token = await self._tokens.token(f"{self._endpoint}/.default")
        self.secrets.keep(token)
        return Signature(headers={"Authorization": f"Bearer {token}"})

    async def try_out(self, signature: Signature) -> None:
        try:
            await self.ask("GET", "", params=_VERSION, signature=signature, pace="read")
        except Refused as error:
            fields = "subscriptionId, resourceGroup and workspaceName"
            raise BadCredentials(f"Azure ML: {error.words}; check {fields}, and your rights there") from error

    async def signed_anew(self) -> bool:
        await self._tokens.close()  # drops the refused token
        await self.refreshed()
        return True

    def words(self, response: httpx.Response) -> tuple[str, str]:
        try:
            error = response.json()["error"]
            return str(error.get("code") or ""), str(error.get("message") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            return "", response.text

    async def refreshed(self) -> None:
        """Renews the signature. A token lasts an hour, and azure-identity caches valid tokens."""
        self.signature = await self.signature_of("")

    async def put(self, path: str, body: Json) -> Any:
        await self.refreshed()
        return await self.ask_json("PUT", path, pace="write", params=_VERSION, json=body)

    async def post(self, path: str, body: Json | None = None) -> httpx.Response:
        await self.refreshed()
        return await self.ask("POST", path, pace="write", params=_VERSION, json=body or {})

    async def get(self, path: str) -> Any | None:
        """The resource at a path below the workspace; None: it does not exist."""
        await self.refreshed()
        try:
            return await self.ask_json("GET", path, pace="read", params=_VERSION)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def jobs(self, tag: str) -> Mapping[str, Any]:
        """All jobs that have this tag, with any value, by name."""
        await self.refreshed()
        found: dict[str, Any] = {}
        params: Mapping[str, str] = {**_VERSION, "tag": tag, "jobType": "Command", "listViewType": "ActiveOnly"}
        for _ in range(_MOST_PAGES):
            page = await self.ask_json("GET", "jobs", pace="read", params=params)
            found |= {str(job["name"]): job for job in page.get("value") or ()}
            if not (following := page.get("nextLink")):
                break
            params = dict(parse_qsl(urlsplit(following).query))
        return found


_VERSION: Mapping[str, str] = {"api-version": API_VERSION}
