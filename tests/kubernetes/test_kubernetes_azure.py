"""The key of a storage account: as given, else from a vault; its refusals name the next step."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import pytest
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.kubernetes.fields import AzureStorage
from nni_manager.kubernetes.jobs.storage import account_key

pytestmark = pytest.mark.unit

STORAGE = AzureStorage(
    storageType="azureStorage", azureAccount="acc", azureShare="shr", keyVaultName="vault", keyVaultKey="entry"
)


class Vault:
    """Both of the library's clients: a login, and a vault."""

    asked: ClassVar[list[tuple[str, str]]]
    error: ClassVar[AzureError | None] = None

    def __init__(self, address: str = "", credential: object = None) -> None:
        self._address = address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get_secret(self, name: str) -> Any:
        self.asked.append((self._address, name))
        if self.error is not None:
            raise self.error
        return type("Secret", (), {"value": "the key"})


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> type[Vault]:
    class Fresh(Vault):
        asked: ClassVar[list[tuple[str, str]]] = []

    monkeypatch.setattr("azure.keyvault.secrets.aio.SecretClient", Fresh)
    monkeypatch.setattr("azure.identity.aio.DefaultAzureCredential", Fresh)
    return Fresh


async def test_given_key_is_used(vault: type[Vault]) -> None:
    assert await account_key(STORAGE.model_copy(update={"azure_account_key": "mine"})) == "mine"
    assert vault.asked == []


async def test_key_is_read_from_the_vault(vault: type[Vault]) -> None:
    assert await account_key(STORAGE) == "the key"
    assert vault.asked == [("https://vault.vault.azure.net", "entry")]


def _answered(status: int, kind: type[HttpResponseError] = HttpResponseError) -> HttpResponseError:
    error = kind("no")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ClientAuthenticationError("no login"), BadCredentials, "az login"),
        (_answered(404, ResourceNotFoundError), BadCredentials, "storage.keyVaultKey: entry cannot be read"),
        (_answered(403), BadCredentials, "right to get secrets"),
        (_answered(503), PlatformUnavailable, "is unavailable"),
        (_answered(429), PlatformUnavailable, "is unavailable"),
        (ServiceRequestError("no such host"), PlatformUnavailable, "is unreachable"),
    ],
)
async def test_refusals_of_a_vault(vault: type[Vault], error: AzureError, kind: type[Exception], words: str) -> None:
    vault.error = error
    with pytest.raises(kind, match=words):
        await account_key(STORAGE)
