"""What the jobs of one service share.

The section's storage: the volume that pods mount, its path on this machine, and its address for users. Objects in the
cluster: the runner in a ConfigMap; Secrets with registry logins and storage keys, from the config or a key vault. They
are created before the first job, found again by name, and removed with the experiment.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformUnavailable
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.names import service_labels
from nni_manager.kubernetes.fields import AzureStorage, KubernetesSection, NfsStorage, PvcStorage
from nni_manager.kubernetes.jobs.pod import RUNNER_FILE, storage_folder
from trial_runner import protocol


def mount_point(config: KubernetesSection) -> Path | None:
    """The folder where the storage is mounted on this machine; None: not mounted here."""
    storage = config.pod_storage
    if storage is None:
        return None
    path = storage.path if isinstance(storage, PvcStorage) else storage.local_mount_point
    return Path(path) if path else None


def channel(config: KubernetesSection) -> str:
    """The channel for results. If the section sets none, each pod tests whether it reaches this machine."""
    return config.channel or (protocol.PULL if mount_point(config) else protocol.PUSH_OR_EXEC)


def volume(config: KubernetesSection, azure_secret: str) -> Object | None:
    """The source of the volume; None: pods have an empty folder, or the volumes of a template."""
    match config.pod_storage:
        case NfsStorage(server=server, path=path):
            return {"nfs": {"server": server, "path": path}}
        case AzureStorage(azure_share=share):
            return {"azureFile": {"secretName": azure_secret, "shareName": share, "readOnly": False}}
        case PvcStorage(claim_name=str(claim)):
            return {"persistentVolumeClaim": {"claimName": claim}}
    return None


def address(config: KubernetesSection, spec: JobSpec) -> str:
    """The address of the attempt's folder, as NNI writes it; empty: the storage does not outlive the pod."""
    folder = storage_folder(spec)
    match config.pod_storage:
        case NfsStorage(server=server, path=path):
            return f"nfs://{server}:{path.rstrip('/')}/{folder}"
        case AzureStorage(azure_account=account, azure_share=share):
            return f"https://{account}.file.core.windows.net/{share}/{folder}"
        case PvcStorage(claim_name=claim, path=path):
            return f"{claim or path}:{folder}"
    return ""


LOGIN_KEY = ".dockerconfigjson"
#: Keys of the Secret for a volume of kind azureFile.
_AZURE_NAME, _AZURE_KEY = "azurestorageaccountname", "azurestorageaccountkey"


def runner_map(experiment_id: str, service: str, archive: bytes) -> Object:
    """The ConfigMap that holds the runner."""
    name = _name(experiment_id, service, "runner", archive)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": service_labels(experiment_id, service)},
        "binaryData": {RUNNER_FILE: base64.b64encode(archive).decode()},
    }


def pull_secret(experiment_id: str, service: str, login: bytes) -> Object:
    """The Secret with a registry login; `login`: a docker `config.json`."""
    kind, data = "kubernetes.io/dockerconfigjson", {LOGIN_KEY: login}
    return _secret(_name(experiment_id, service, "registry", login), experiment_id, service, kind, data)


def azure_secret(experiment_id: str, service: str, account: str, key: str) -> Object:
    name = _name(experiment_id, service, "azure", f"{account} {key}".encode())
    return _secret(name, experiment_id, service, "Opaque", {_AZURE_NAME: account.encode(), _AZURE_KEY: key.encode()})


def read_login(path: Path, field: str) -> bytes:
    """A registry login, read from a file. Blocks. Raises InvalidInput, which names the `field`."""
    try:
        data = path.read_bytes()
        told = json.loads(data)
    except OSError as error:
        raise InvalidInput(f"{field}: {path} cannot be read ({error.strerror}); use a docker config.json") from None
    except ValueError:
        raise InvalidInput(
            f"{field}: {path} is not JSON; use a docker config.json, as written by `docker login`"
        ) from None
    if not isinstance(told, dict) or not isinstance(told.get("auths"), dict):
        raise InvalidInput(f"{field}: {path} has no `auths`; use a docker config.json, as written by `docker login`")
    return data


def _secret(name: str, experiment_id: str, service: str, kind: str, data: dict[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "labels": service_labels(experiment_id, service)},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _name(experiment_id: str, service: str, what: str, content: bytes) -> str:
    """The name of a shared object with a hash of its content: an existing object of that name is identical."""
    digest = hashlib.sha256(f"{experiment_id} {service} ".encode() + content).hexdigest()[:10]
    readable = re.sub(r"[^a-z0-9]+", "-", f"nni-{experiment_id}-{service}".lower())[:40].strip("-")
    return f"{readable}-{what}-{digest}"


async def account_key(storage: AzureStorage) -> str:
    """The key of a storage account. Secret. Raises BadCredentials and PlatformUnavailable."""
    return storage.azure_account_key or await _from_vault(storage.key_vault_name, storage.key_vault_key)


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
    except HttpResponseError as error:  # includes missing logins
        if error.status_code is not None and (error.status_code == 429 or error.status_code >= 500):
            raise PlatformUnavailable(f"{address} is unavailable ({error.status_code})", refused=True) from None
        raise BadCredentials(
            f"storage.keyVaultKey: {name} cannot be read from {address} ({error.reason or type(error).__name__}); "
            "log in with `az login` as a user with the right to get secrets there, or set storage.azureAccountKey"
        ) from None
    except AzureError as error:
        raise PlatformUnavailable(f"{address} is unreachable: {error}", refused=True) from None
