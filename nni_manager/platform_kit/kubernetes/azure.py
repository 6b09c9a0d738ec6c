"""The key of a storage account of Azure: as given, or out of a key vault."""

from __future__ import annotations

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable
from nni_manager.domain.experiment import Json


async def account_key(storage: Json) -> str:
    """The key of a storage account, which is secret. Raises BadCredentials and PlatformUnavailable."""
    given = storage.get("azureAccountKey")
    return str(given) if given else await _from_vault(str(storage["keyVaultName"]), str(storage["keyVaultKey"]))


async def _from_vault(vault: str, name: str) -> str:
    try:
        from azure.core.exceptions import AzureError, HttpResponseError
        from azure.identity.aio import DefaultAzureCredential
        from azure.keyvault.secrets.aio import SecretClient
    except ImportError:
        raise BadCredentials("reading a key vault needs `pip install 'nni-manager[azure]'`") from None
    address = f"https://{vault}.vault.azure.net"
    try:
        async with DefaultAzureCredential() as credential, SecretClient(address, credential) as client:
            return str((await client.get_secret(name)).value)
    except HttpResponseError as error:  # logins that are not there are among them
        if error.status_code is not None and (error.status_code == 429 or error.status_code >= 500):
            raise PlatformUnavailable(f"{address} cannot be asked now ({error.status_code})", refused=True) from None
        raise BadCredentials(
            f"storage.keyVaultKey: {name} cannot be read from {address} ({error.reason or type(error).__name__}); "
            "log in with `az login` as somebody who may get secrets there, or give storage.azureAccountKey"
        ) from None
    except AzureError as error:
        raise PlatformUnavailable(f"{address} cannot be reached: {error}", refused=True) from None
