"""A namespace of a real cluster as a `World`: trials are led by commands in their pods, and a relay before the API
server plays what no server does on demand."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kubernetes_asyncio import client

from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.cluster import Kind
from nni_manager.kubernetes.jobs import submission
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Feature, Recorder
from nni_manager.platform_kit.testing.observing import insist
from tests.platforms.live import foreign_jobs
from tests.platforms.live.kubeconfigs import Kubeconfig
from tests.platforms.live.live_world import LiveWorld, Service
from tests.platforms.live.pod_orders import PodOrders, api
from tests.platforms.live.relay import Relay, relay

_WRONG = "a-wr0ng-token"
_UNPLAYED = "a real cluster does not do it on demand"
_ABSENT = {
    **dict.fromkeys((Feature.PENDING, Feature.WAIT_REASONS, Feature.ROOM), _UNPLAYED),
    Feature.VANISH: "what is deleted on a real server is told to all that watch",
    Feature.CALLS: "it wants a hundred pods at a time",
    Feature.STATES: "a table; the adapter's own tests have it",
    Feature.STORAGE: "what a cluster mounts is its own; the adapter's own tests have it",
    Feature.PUSH: "pods need not reach this machine; the adapter's own tests have it",
    Feature.HOPELESS_WAITS: "queues of Kueue have tests of their own",
    Feature.TIME_LIMIT: "limits of Jobs have tests of their own",
    Feature.ENDING_NOTICE: "a cluster announces nothing to a container",
    Feature.SECOND_RUN: "containers that start again have tests of their own",
    Feature.OVERLOOKED: "a cluster is watched",
    Feature.QUEUE: "queues of Kueue have tests of their own",
    Feature.MACHINES: "a cluster hides its machines",
    Feature.PACE: "the server says itself when it wants to be left alone",
    Feature.REPLICAS: "jobs of several pods have experiments of their own as tests",
}
#: Kinds of objects that may be ours, as the official client has them.
_CORE = ("pod", "secret", "config_map", "persistent_volume_claim")
#: Paths of lists, watches left out.
_LISTS = re.compile(r"(?!.*[?&]watch=)")
_NONCE = "0123456789abcdef"
_LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A namespace."""

    #: The kubeconfig of a user with the rights that tests need in addition to the adapter's.
    owner: Path
    namespace: str
    #: Of pods that are none of ours.
    image: str


class ClusterWorld(LiveWorld):
    """`directory`: of the test."""

    relay: Relay

    def __init__(self, directory: Path, service: Service, place: Place) -> None:
        super().__init__(directory, service)
        left_out = dict.fromkeys(service.without, "the server does not offer it")
        self.absent = {**_ABSENT, **left_out}  # type: ignore[misc]
        self._directory = directory
        self._place = place
        #: By their experiments.
        self._recorders = {self.recorder.experiment_id: self.recorder}
        self._user = Kubeconfig.read(str(self._settings["kubeconfig"]), str(self._settings.get("context") or ""))
        self.secrets = (*self._user.secrets, _WRONG)

    async def open(self) -> None:
        folder = self._directory / "relay"
        folder.mkdir()
        direct = self._user.write(folder / "direct", self._place.namespace)
        self.relay = await self._held.enter_async_context(relay(direct, folder))
        through = self._user.at(self.relay.address, self.relay.authority)
        self._through = str(through.write(folder / "through", self._place.namespace))
        self._unauthorised = str(through.of(_WRONG).write(folder / "wrong", self._place.namespace))
        self._pods = PodOrders(self._place.owner, self._place.namespace, self.patience_s)
        self.orders = self._pods  # type: ignore[assignment]

    async def remove_all(self) -> None:
        await self.relay.restore()
        for recorder in self._recorders.values():
            await insist(self, lambda recorder=recorder: self.make_of(recorder).clean([]))  # type: ignore[misc]
        async with api(self._place.owner) as server:
            for one in await self._labelled(server, foreign_jobs.LABELS):
                await self._delete(server, one["metadata"]["name"])
        for experiment_id in self._recorders:
            await self._until_gone(experiment_id)

    async def _until_gone(self, experiment_id: str) -> None:
        async with asyncio.timeout(self.patience_s):
            while await self.traces(experiment_id):  # noqa: ASYNC110 (the owner's end takes what it owns along)
                await asyncio.sleep(_LOOK_AGAIN_S)

    # The adapter

    def make(self) -> Platform[Any]:
        return self.make_of(self.recorder)

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        return self._through_relay(recorder, self._through)

    def make_unauthorised(self) -> Platform[Any]:
        return self._through_relay(self.recorder, self._unauthorised)

    def _through_relay(self, recorder: Recorder, kubeconfig: str) -> Platform[Any]:
        return self.made(recorder, {**self._settings, "kubeconfig": kubeconfig, "context": None})

    # Jobs

    def job_of(self, recorder: Recorder, trial_id: str) -> JobSpec:
        self._recorders.setdefault(recorder.experiment_id, recorder)
        return dataclasses.replace(super().job_of(recorder, trial_id), nonce=_NONCE)

    async def count(self, job_name: str) -> int:
        return await self.orders.starts(job_name)

    async def write_log(self, handle: JobHandle, line: str) -> None:
        await super().write_log(handle, line)
        await self._pods.printed(handle.job_name, line)

    async def cancel_in_portal(self, handle: JobHandle) -> None:
        async with api(self._place.owner) as server:
            await self._delete(server, submission.data_of(handle).name)

    async def plant(self, spec: JobSpec) -> None:
        metadata = {"name": self._object_name(spec), "labels": foreign_jobs.LABELS}
        spec_of_it = foreign_jobs.spec(self._kind.plural, self._place.image)
        body = {"apiVersion": f"{self._kind.group}/{self._version}", "kind": self._kind.kind, "metadata": metadata}
        async with api(self._place.owner) as server:
            custom = client.CustomObjectsApi(server)
            await custom.create_namespaced_custom_object(*self._where, {**body, "spec": spec_of_it})

    async def is_planted(self, spec: JobSpec) -> bool:
        async with api(self._place.owner) as server:
            found = await self._labelled(server, foreign_jobs.LABELS)
        return [one["metadata"]["name"] for one in found] == [self._object_name(spec)]

    def _object_name(self, spec: JobSpec) -> str:
        platform = self.make()
        assert isinstance(platform, KubernetesPlatform)
        return platform.object_name(spec)

    async def traces(self, experiment_id: str) -> Collection[str]:
        labels = {names.EXPERIMENT: experiment_id}
        async with api(self._place.owner) as server:
            jobs = [f"{self._kind.plural} {one['metadata']['name']}" for one in await self._labelled(server, labels)]
            core = client.CoreV1Api(server)
            for kind in _CORE:
                listed = getattr(core, f"list_namespaced_{kind}")
                found = await listed(self._place.namespace, label_selector=names.selector(labels))
                jobs += [f"{kind} {one.metadata.name}" for one in found.items]
        return jobs

    # The platform

    @property
    def sessions_seen(self) -> int:
        """Lists of the jobs: each connection makes one."""
        lists = [path for method, path in self.relay.requests if method == "GET" and _LISTS.match(path)]
        return sum(path.partition("?")[0].endswith(f"/{self._kind.plural}") for path in lists)

    async def start_outage(self) -> None:
        await self.relay.cut()

    async def end_outage(self) -> None:
        await self.relay.listen()

    async def start_hanging(self) -> None:
        self.relay.hold_up()

    async def end_hanging(self) -> None:
        self.relay.let_go()

    async def lose_answer(self) -> None:
        self.relay.lose_answer("POST", f"/{self._kind.plural}")

    # The server, past the relay

    @cached_property
    def _kind(self) -> Kind:
        platform = self.make()
        assert isinstance(platform, KubernetesPlatform)
        return platform.job_kind()

    @property
    def _version(self) -> str:
        return self._kind.version or "v1"

    @property
    def _where(self) -> tuple[str, str, str, str]:
        return self._kind.group, self._version, self._place.namespace, self._kind.plural

    async def _labelled(self, server: client.ApiClient, labels: dict[str, str]) -> list[dict[str, Any]]:
        """Jobs with these labels."""
        custom = client.CustomObjectsApi(server)
        told = await custom.list_namespaced_custom_object(*self._where, label_selector=names.selector(labels))
        found: list[dict[str, Any]] = told["items"]
        return found

    async def _delete(self, server: client.ApiClient, name: str) -> None:
        await client.CustomObjectsApi(server).delete_namespaced_custom_object(*self._where, name)
