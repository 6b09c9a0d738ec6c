"""Objects of one training service in the cluster besides jobs: runner, logins, keys, tokens. All idempotent."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from nni_manager.domain.errors import InvalidInput, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import CONFIG_MAPS, SECRETS, Resource
from nni_manager.kubernetes.fields import AzureStorage, KubernetesSection
from nni_manager.kubernetes.jobs import storage
from nni_manager.kubernetes.jobs.pod import MOUNT, TOKEN_KEY, PodSettings
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.payload import runner_archive
from nni_manager.shared_storage.mounted_storage import AttemptFolder, MountedStorage
from nni_manager.shared_storage.storage_folders import in_thread, make_root, packed, sha256_of
from trial_runner import protocol

#: The key of a job's parameters in its Secret.
_RECORD_KEY = "parameters"
_NNI_FOLDER = "nni"
#: Seconds between two checks that the runner's object still exists.
_MEND_AGAIN_S = 60.0


class ClusterObjects:
    """The objects of one training service in the cluster. `platform`: its name, as trials see it.

    Call `prepare` before `pods` and `pull_secrets`.
    """

    def __init__(self, cluster: Cluster, config: KubernetesSection, host: Host) -> None:
        self._cluster = cluster
        self._config = config
        self._host = host
        self.channel = storage.channel(config)
        self.reach = Reach(cluster)
        self._preparing = asyncio.Lock()
        self._runner_map = ""
        #: Path of a login file → name of its Secret.
        self._logins: dict[str, str] = {}
        self._azure = ""
        #: Time until which the runner's object is not checked again, by the loop's clock.
        self._mend_again_s = float("-inf")
        #: The path of the packed code, as pods see it.
        self._code_archive = self._code_sha256 = ""
        here = storage.mount_point(config)
        #: The storage on which this machine reads results; None: other channels.
        self.storage: MountedStorage | None = None
        if self.channel == protocol.PULL and here is not None:
            mode = config.pod_storage and config.pod_storage.mode
            self.storage = MountedStorage.of(host, here / _NNI_FOLDER, f"{MOUNT}/{_NNI_FOLDER}", mode)
        self._here = here

    # Shared by all jobs

    async def prepare(self) -> None:
        """Creates the missing shared objects.

        Raises Refusal, SubmitRejected, BadCredentials, PlatformUnavailable.
        """
        async with self._preparing:
            if self._runner_map:
                return
            for field, path in login_paths(self._config).items():
                try:
                    login = await asyncio.to_thread(storage.read_login, Path(path), field)
                except InvalidInput as error:
                    raise SubmitRejected(str(error)) from None
                secret = storage.pull_secret(self._host.experiment_id, self._host.service, login)
                self._logins[path] = await self.put(SECRETS, secret)
            await self._prepare_storage()
            if self.channel == protocol.PUSH_OR_EXEC:
                await self.reach.look()
            runner = storage.runner_map(
                self._host.experiment_id, self._host.service, await asyncio.to_thread(runner_archive)
            )
            self._runner_map = await self.put(CONFIG_MAPS, runner)

    async def mend(self) -> None:
        """Recreates removed objects that pods mount; checks at most once a minute.

        Raises as `prepare`.
        """
        now_s = asyncio.get_running_loop().time()
        if not self._runner_map or now_s < self._mend_again_s:
            return
        self._mend_again_s = now_s + _MEND_AGAIN_S
        if await self._cluster.find(CONFIG_MAPS, self._runner_map) is None:
            self._runner_map = ""
            await self.prepare()

    def pretend(self) -> None:
        """Marks all objects as created, for the dry run of a job."""
        self._runner_map = self._azure = "nni-preflight"
        self._logins = dict.fromkeys(login_paths(self._config).values(), "nni-preflight")

    async def _prepare_storage(self) -> None:
        account = self._config.pod_storage
        if isinstance(account, AzureStorage):
            key, name = await storage.account_key(account), account.azure_account
            secret = storage.azure_secret(self._host.experiment_id, self._host.service, name, key)
            self._azure = await self.put(SECRETS, secret)
        if self.storage is not None and self._here is not None:
            here, mounted = self._here, f"the storage mounted at {self._here}"
            await in_thread(lambda: make_root(here, _NNI_FOLDER), mounted, here)
            code = await packed(self._host.code)
            self._code_sha256 = await in_thread(lambda: sha256_of(code), mounted, here)
            self._code_archive = self.storage.code_archive(code)

    async def put(self, resource: Resource, body: Object) -> str:
        """Creates an object and returns its name, a hash of the content: an existing object is identical."""
        body["metadata"]["labels"][names.MANAGER] = names.label(self._host.connections.identity)
        try:
            await self._cluster.create(resource, body)
        except Refusal as refusal:
            if not refusal.is_there:
                raise
        return str(body["metadata"]["name"])

    def pods(self, *, service_account: str = "", code_in_image: str = "") -> PodSettings:
        """The settings that all pods of a job share."""
        channel = self.reach.channel() if self.channel == protocol.PUSH_OR_EXEC else self.channel
        return PodSettings(
            platform=self._config.platform,
            channel=channel,
            own_address=self.reach.own_address,
            runner_map=self._runner_map,
            code_archive=self._code_archive,
            code_sha256=self._code_sha256,
            storage=storage.volume(self._config, self._azure),
            gpu_resource=self._config.gpu_resource_name or "nvidia.com/gpu",
            priority_class=self._config.priority_class_name or "",
            service_account=service_account,
            code_in_image=code_in_image,
            labels=self._config.labels or {},
            annotations=self._config.annotations or {},
            template=self._config.pod_template or {},
        )

    def folder(self, attempt_directory: str) -> AttemptFolder | None:
        """The folder of an attempt on storage that is also mounted here; None: there is none."""
        return self.storage.attempt(attempt_directory) if self.storage is not None else None

    def pull_secrets(self, login: str | None) -> Sequence[str]:
        """The names of Secrets with a role's registry logins; `login`: its `privateRegistryAuthPath`."""
        return (self._logins[login],) if login else ()

    # Of one job

    @staticmethod
    def secret_name(name: str) -> str:
        """The name of the Secret of the job `name`."""
        return f"{name}-runner"

    async def prepare_job(self, spec: JobSpec) -> None:
        """Writes the files of a job to the storage before its creation. Raises SubmitRejected, PlatformUnavailable."""
        if self.storage is not None:
            await self.storage.put(spec, {}, self._host.code)

    async def put_secret(self, spec: JobSpec, job: Object) -> None:
        """Creates the Secret that the job's pods need; repeatable. Raises Refusal, PlatformUnavailable.

        It is created after its job, which owns it, so deleting the job deletes it, too. Pods wait for it.
        """
        if not (data := self._secret_data(spec)):
            return
        meta = job["metadata"]
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "name": self.secret_name(meta["name"]),
                "labels": dict(meta["labels"]),
                "ownerReferences": [owner(job)],
            },
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        try:
            await self._cluster.create(SECRETS, secret)
        except Refusal as refusal:
            if not refusal.is_there:
                raise
            await self._judge_secret(job)

    def _secret_data(self, spec: JobSpec) -> dict[str, str]:
        told = spec.runner_environment.get(protocol.ENV_TOKEN)
        data = {TOKEN_KEY: told} if told and self.channel in (protocol.PUSH, protocol.PUSH_OR_EXEC) else {}
        if self.channel in (protocol.EXEC, protocol.PUSH_OR_EXEC):
            data[_RECORD_KEY] = spec.parameter_record
        return data

    async def _judge_secret(self, job: Object) -> None:
        """Checks the owner of an existing Secret; a Secret of an earlier job with the same name is removed.

        Raises Refusal, and PlatformUnavailable if the Secret must be created again.
        """
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        found = await self._cluster.find(SECRETS, self.secret_name(name))
        owners = [one.get("uid") for one in (found or {}).get("metadata", {}).get("ownerReferences") or ()]
        if uid not in owners:
            if found is not None:
                await self._cluster.delete(SECRETS, self.secret_name(name), uid=found["metadata"]["uid"])
            raise PlatformUnavailable(f"the Secret {self.secret_name(name)} belonged to another job; creating it again")

    async def record(self, name: str) -> str:
        """The parameters of the job `name`. Raises Refusal and PlatformUnavailable."""
        secret = await self._cluster.find(SECRETS, self.secret_name(name))
        if secret is None or _RECORD_KEY not in (secret.get("data") or {}):
            raise PlatformUnavailable(
                f"the Secret {self.secret_name(name)} no longer exists, and the parameters with it"
            )
        return base64.b64decode(secret["data"][_RECORD_KEY]).decode()

    async def close(self) -> None:
        """Removes all objects with our labels except those of jobs. Raises Refusal."""
        labels = names.selector(names.service_labels(self._host.experiment_id, self._host.service))
        for resource in (SECRETS, CONFIG_MAPS):
            for found in await self._cluster.list(resource, labels):
                await self._cluster.delete(resource, found["metadata"]["name"])
        self._runner_map = ""


def owner(job: Object) -> Object:
    """A reference to a job as the owner of another object."""
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }


def login_paths(config: KubernetesSection) -> dict[str, str]:
    """The paths of all registry logins in the section, by their fields."""
    return {
        f"trainingService.{field}.privateRegistryAuthPath": role.private_registry_auth_path
        for field, role in config.replicas()
        if role.private_registry_auth_path
    }


log = logging.getLogger(__name__)

#: Seconds without new attempts after a pod could not connect: each attempt costs time.
_TRY_AGAIN_S = 600.0


class Reach:
    """What one service knows about whether pods reach this machine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._may_exec = True
        self._out_of_reach_until_s = float("-inf")
        #: This machine's address on the route to the cluster; empty: unknown.
        self.own_address = ""

    async def look(self) -> None:
        """Checks rights and routes, once, before the first job. Raises Refusal and PlatformUnavailable."""
        self._may_exec = await self._cluster.may_exec()
        if not self._may_exec:
            log.warning(
                "commands in pods are not allowed (pods/exec): results arrive only from pods that reach this machine"
            )
        host = (await self._cluster.client()).host
        self.own_address = await asyncio.to_thread(_address_towards, host)

    def channel(self) -> str:
        """The channel for the next job."""
        if not self._may_exec:
            return protocol.PUSH
        is_out_of_reach = asyncio.get_running_loop().time() < self._out_of_reach_until_s
        return protocol.EXEC if is_out_of_reach else protocol.PUSH_OR_EXEC

    def note(self, channel: str) -> None:
        """Notes the channel that a pod has chosen."""
        if channel == protocol.EXEC:
            log.info("a pod did not reach the trial listener: results arrive through the cluster's API")
            self._out_of_reach_until_s = asyncio.get_running_loop().time() + _TRY_AGAIN_S


def _address_towards(host: str) -> str:
    """This machine's address on the route to the cluster's API; empty: pods cannot use it. Sends no packet."""
    parts = urlsplit(host)
    try:
        family, _, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if found.startswith("127.") or found == "::1" or "%" in found else found
