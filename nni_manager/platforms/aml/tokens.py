"""Tokens of Microsoft Entra, by azure-identity: environment, managed identity, `az login`, whichever there is."""

from __future__ import annotations

from typing import Any, Protocol

from nni_manager.domain.errors import BadCredentials

STORAGE_SCOPE = "https://storage.azure.com/.default"
_MOST_WORDS = 300


class Tokens(Protocol):
    async def token(self, scope: str) -> str:
        """A token for a scope. Raises BadCredentials."""

    async def renew(self) -> None:
        """Gets new tokens from now on: the last one was refused."""

    async def close(self) -> None: ...


class AzureTokens:
    """Tokens by azure-identity, which is imported on first use.

    `authority`: host of a sovereign cloud's Entra; empty: the public one.
    """

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._credential: Any = None

    async def token(self, scope: str) -> str:
        from azure.core.exceptions import AzureError
        from azure.identity.aio import DefaultAzureCredential

        if self._credential is None:
            options = {"authority": self._authority} if self._authority else {}
            self._credential = DefaultAzureCredential(**options)
        try:
            return str((await self._credential.get_token(scope)).token)
        except AzureError as error:
            first = str(error).strip().partition("\n")[0][:_MOST_WORDS]
            raise BadCredentials(
                f"Azure gives no token: {first}; run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and"
                " AZURE_CLIENT_SECRET where the manager runs"
            ) from None

    async def renew(self) -> None:
        await self.close()

    async def close(self) -> None:
        credential, self._credential = self._credential, None
        if credential is not None:
            await credential.close()
