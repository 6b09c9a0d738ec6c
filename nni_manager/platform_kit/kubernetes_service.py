"""One training service's own objects in the cluster, beside its jobs: runner, logins, keys, tokens. All idempotent."""

from __future__ import annotations

import asyncio
import base64
import functools
from collections.abc import Sequence
from pathlib import Path

from nni_manager.domain.errors import InvalidInput, SubmitRejected
from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobSpec
from nni_manager.platform_kit import kubernetes_names
from nni_manager.platform_kit import kubernetes_shared_objects as shared
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.kubernetes_client import MERGE_PATCH, Object, Refusal
from nni_manager.platform_kit.kubernetes_cluster import Cluster
from nni_manager.platform_kit.kubernetes_pod import TOKEN_KEY, PodSettings
from nni_manager.platform_kit.kubernetes_resource import CONFIG_MAPS, SECRETS, Resource
from nni_manager.platform_kit.runner_archive import runner_archive
from trial_runner import protocol


class Service:
    """`platform`: its name, as trials see it. `prepare` comes before `pods` and `pull_secrets`."""

    def __init__(self, cluster: Cluster, settings: Json, host: Host, platform: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._host = host
        self._platform = platform
        self._preparing = asyncio.Lock()
        self._runner_map = ""
        #: Path of a login → name of its Secret.
        self._logins: dict[str, str] = {}
        self._azure = ""

    # Shared by all jobs

    async def prepare(self) -> None:
        """Makes what is not there yet. Raises Refusal, SubmitRejected, PlatformUnavailable."""
        async with self._preparing:
            if self._runner_map:
                return
            for field, path in login_paths(self._settings).items():
                try:
                    login = await asyncio.to_thread(shared.read_login, Path(path), field)
                except InvalidInput as error:
                    raise SubmitRejected(str(error)) from None
                secret = shared.pull_secret(self._host.experiment_id, self._host.service, login)
                self._logins[path] = await self.put(SECRETS, secret)
            runner = shared.runner_map(self._host.experiment_id, self._host.service, await asyncio.to_thread(_archive))
            self._runner_map = await self.put(CONFIG_MAPS, runner)

    async def put(self, resource: Resource, body: Object) -> str:
        """Its name says what is in it: one that is there is the right one."""
        try:
            await self._cluster.create(resource, body)
        except Refusal as refusal:
            if refusal.status != 409:
                raise
        return str(body["metadata"]["name"])

    def pods(self, *, service_account: str = "", code_in_image: str = "") -> PodSettings:
        """What all pods share."""
        settings = self._settings
        return PodSettings(
            platform=self._platform, channel=str(settings.get("channel") or protocol.PUSH),
            runner_map=self._runner_map, storage=self._volume(),
            gpu_resource=str(settings.get("gpuResourceName") or "nvidia.com/gpu"),
            priority_class=str(settings.get("priorityClassName") or ""), service_account=service_account,
            code_in_image=code_in_image, template=dict(_mapping(settings.get("podTemplate"))),
        )  # fmt: skip

    def _volume(self) -> Object | None:
        """The source of the volume that pods mount."""
        storage = _mapping(self._settings.get("storage"))
        match storage.get("storageType"):
            case "nfs":
                return {"nfs": {"server": storage["server"], "path": storage["path"]}}
            case "pvc" if storage.get("claimName"):
                return {"persistentVolumeClaim": {"claimName": storage["claimName"]}}
            case _:
                return None

    def pull_secrets(self, login: object) -> Sequence[str]:
        """Of a role; `login`: its `privateRegistryAuthPath`."""
        return (self._logins[str(login)],) if login else ()

    # Of one job

    @staticmethod
    def token_name(name: str) -> str:
        """Of the Secret of the job of that name."""
        return f"{name}-token"

    async def put_token(self, spec: JobSpec, name: str, labels: dict[str, str]) -> None:
        """What the job's runner shows us; quiet where it needs not. Raises Refusal."""
        token = spec.runner_environment.get(protocol.ENV_TOKEN)
        if token:
            metadata = {"name": self.token_name(name), "labels": labels}
            data = {TOKEN_KEY: base64.b64encode(token.encode()).decode()}
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
            await self.put(SECRETS, secret)

    async def own_token(self, job: Object) -> None:
        """It goes with its job, whoever deletes that. Raises Refusal."""
        meta = job["metadata"]
        patch = {"metadata": {"ownerReferences": [owner(job)]}}
        path = SECRETS.path(self._cluster.namespace, self.token_name(meta["name"]))
        try:
            await self._cluster.call("PATCH", path, body=patch, content_type=MERGE_PATCH)
        except Refusal as refusal:
            if refusal.status not in (403, 404):  # it is removed by name anyway
                raise

    async def drop_token(self, name: str) -> None:
        await self._cluster.delete(SECRETS, self.token_name(name))

    async def close(self) -> None:
        """Removes everything with our labels that is no job's. Raises Refusal."""
        labels = kubernetes_names.selector(
            kubernetes_names.service_labels(self._host.experiment_id, self._host.service)
        )
        for resource in (SECRETS, CONFIG_MAPS):
            for found in await self._cluster.list(resource, labels):
                await self._cluster.delete(resource, found["metadata"]["name"])
        self._runner_map = ""


def owner(job: Object) -> Object:
    """A reference to it."""
    return {
        "apiVersion": job["apiVersion"], "kind": job["kind"], "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }  # fmt: skip


def login_paths(settings: Json) -> dict[str, str]:
    """Field → path, of all logins of registries in the section."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        roles = enumerate(value) if isinstance(value, list | tuple) else [(None, value)]
        for number, role in roles:
            path = role.get("privateRegistryAuthPath") if isinstance(role, dict) else None
            if path:
                where = name if number is None else f"{name}[{number}]"
                found[f"trainingService.{where}.privateRegistryAuthPath"] = str(path)
    return found


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


@functools.cache
def _archive() -> bytes:
    return runner_archive()
