"""A cluster as a `World`: the fake API server with its controllers, and pods with commands led through pipes on storage
that this machine mounts, too."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from nni_manager.code_archive import pack
from nni_manager.domain.experiment import Json
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.kubernetes.fields import KubernetesSection
from nni_manager.kubernetes.platform import KubernetesPlatform
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Host, Platform
from nni_manager.platform_kit.testing import Feature, Lag, LaggingStorage, Recorder, lagging_storage
from nni_manager.platform_kit.testing.world import unreachable_keeper
from tests.fakes.kubernetes.control import Control
from tests.fakes.kubernetes.kubeconfig import Credentials
from tests.fakes.kubernetes.pretences import Pretence
from tests.fakes.kubernetes.server import Server
from tests.fakes.kubernetes.settings import Settings
from tests.platforms.keeper_world import job_spec
from tests.platforms.obedient_job import PATIENCE_S, ObedientWorld
from tests.platforms.role_commands import with_commands, without_commands
from trial_runner import protocol

RUNNER_TOKEN = "t0ken-of-the-runner"
WRONG_TOKEN = "wr0ng-t0ken"
SERVER, EXPORT = "10.0.0.1", "/export"
#: Names of trials with pods that need not run.
_CROWD = re.compile(r"t\d+")
_LOOK_AGAIN_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Operated:
    """One kind of job of an adapter. `resource`: as the fake calls it."""

    adapter: Callable[[Any, Host], Platform[Any]]
    config: type[KubernetesSection]
    settings: Json
    resource: str
    native_states: Collection[str]
    state_of: Callable[[str], JobState]
    #: `spec` of a foreign job, which runs for long.
    foreign: Json


class KubernetesWorld(ObedientWorld):
    patience_s = 30.0
    absent: ClassVar[Mapping[Feature, str]] = {
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

    def __init__(self, directory: Path, operated: Operated, *, kueue: str = "") -> None:
        super().__init__()
        self.operated = operated
        self.native_states = operated.native_states
        self.mounted = directory / "mounted"
        self.folder = self.recorder.folder = directory / "experiment"
        self.code = directory / "code"
        self._directory = directory
        #: Names of jobs that may start.
        self._begun: set[str] = set()
        exports = {f"{SERVER}:{EXPORT}": self.mounted}
        self.server = Server(Settings(directory / "cluster", back_off=0.1, exports=exports, kueue=kueue))
        self.control = Control(self.server)

    async def __aenter__(self) -> Self:
        for folder in (self.mounted, self.folder / "code"):
            folder.mkdir(parents=True)
        self._write_code()
        self.recorder.code_archive = pack(self.code, self.folder / "code").path
        await self.server.start()
        self.kubeconfig = self.server.kubeconfig(self._directory / "kubeconfig")
        admin = self.server.admin()
        self.secrets = (RUNNER_TOKEN, WRONG_TOKEN, admin.token)
        self._hold_back()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        await self.server.close()
        for pipes in self._pipes.values():
            pipes.close()

    # The adapter

    def make(self, **settings: Any) -> Platform[Any]:
        storage = {"storageType": "nfs", "server": SERVER, "path": EXPORT, "localMountPoint": str(self.mounted)}
        return self._make({"storage": storage, **settings})

    def make_pushing(self) -> Platform[Any]:
        self._release_all()
        return self._make({"storage": {"storageType": "nfs", "server": SERVER, "path": EXPORT}, "channel": "push"})

    def make_of(self, recorder: Recorder) -> Platform[Any]:
        storage = {"storageType": "nfs", "server": SERVER, "path": EXPORT, "localMountPoint": str(self.mounted)}
        return self._make({"storage": storage}, recorder)

    def make_unauthorised(self) -> Platform[Any]:
        path = self.server.kubeconfig(self._directory / "wrong", Credentials(token=WRONG_TOKEN))
        return self.make(kubeconfig=str(path))

    def _make(self, settings: dict[str, Any], recorder: Recorder | None = None) -> Platform[Any]:
        whole = {"kubeconfig": str(self.kubeconfig), "namespace": "default", **self.operated.settings, **settings}
        config = without_commands(self.operated.config.model_validate(with_commands(whole)))
        return self.operated.adapter(config, (recorder or self.recorder).host(unreachable_keeper()))

    def state_of(self, native: str) -> JobState:
        return self.operated.state_of(native)

    async def restart(self) -> None:
        self.recorder.connections = Connections()

    # Jobs

    def command(self, trial_id: str, command: str, recorder: Recorder | None = None) -> JobSpec:
        experiment_id = (recorder or self.recorder).experiment_id
        return job_spec(
            name=job_name(experiment_id, trial_id, 1),
            experiment_id=experiment_id,
            trial_id=trial_id,
            attempt=1,
            command=command,
            caller_environment={},
            code_directory=str(self.code),
            nonce="nonce",
            attempt_directory=str((recorder or self.recorder).folder / "trials" / trial_id),
            runner_environment={protocol.ENV_TOKEN: RUNNER_TOKEN, protocol.ENV_MANAGER_URL: "http://127.0.0.1:9/none"},
        )

    def pushing_job(self, trial_id: str, command: str, runner_environment: Mapping[str, str]) -> JobSpec:
        return dataclasses.replace(self.command(trial_id, command), runner_environment=runner_environment)

    def directory(self, job_name: str) -> Path:
        """Where the runner of a job works, on the storage."""
        _, _, experiment_id, _, trial_id = job_name.split("_")
        return self.mounted / "nni" / experiment_id / trial_id

    async def begin(self, handle: JobHandle) -> None:
        trial_id = handle.job_name.rpartition("_")[2]
        if _CROWD.fullmatch(trial_id):
            self.server.cluster.pretences.add(Pretence(f"nni-manager/trial={trial_id}", 1000.0))
        self._begun.add(self.object_name(handle))
        self._hold_back()
        self.server.cluster.nodes.wake()
        if not _CROWD.fullmatch(trial_id):
            await self._until(lambda: (self.directory(handle.job_name) / "starts").exists())

    async def end(self, handle: JobHandle, exit_code: int) -> None:
        self._pipes[handle.job_name].order(f"exit {exit_code}")
        await self._until(lambda: not any(pod["status"].get("phase") == "Running" for pod in self.pods(handle)))

    async def vanish(self, handle: JobHandle) -> None:
        control = self.control
        control.vanish(self.operated.resource, "default", self.object_name(handle))
        for pod in self.pods(handle):
            control.lose_pod("default", pod["metadata"]["name"])

    async def count(self, job_name: str) -> int:
        if not (self.directory(job_name) / "starts").exists():
            return 0
        if self._runs(job_name):
            await self._pipes[job_name].tell("ping")
        return len((self.directory(job_name) / "starts").read_text().splitlines())

    def lag(self, lag: Lag) -> AbstractContextManager[LaggingStorage]:
        return lagging_storage(self.mounted, lag)

    async def hold_back(self, handle: JobHandle, number: int) -> str:
        words = ("1 Insufficient cpu", "1 Insufficient nvidia.com/gpu")[number]
        self._hold_back(words)
        self.server.cluster.nodes.wake()
        return words

    async def cancel_in_portal(self, handle: JobHandle, policy: str = "Background") -> None:
        self.control.delete(self.operated.resource, "default", self.object_name(handle), policy)

    def use_up_quota(self) -> None:
        """No pod may be made any more."""
        kind = self.server.cluster.kinds.by_key("resourcequotas")
        assert kind is not None
        body = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"hard": {"pods": "0"}},
        }
        self.server.cluster.verbs.create(kind, "default", body)

    def change(self, handle: JobHandle, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the object of a job, as others may."""
        changed = copy.deepcopy(self.job_object(handle))
        change(changed)
        self.server.cluster.store.put(self.operated.resource, ("default", self.object_name(handle)), changed)

    async def ended_there(self, handle: JobHandle) -> None:
        """Returns once the job's object says that it has ended."""

        def is_over() -> bool:
            told = self.job_object(handle).get("status") or {}
            conditions = [one["type"] for one in told.get("conditions") or () if one["status"] == "True"]
            return told.get("phase") == "Failed" or told.get("state") == "Completed" or "Failed" in conditions

        await self._until(is_over)

    async def gone_there(self, handle: JobHandle) -> None:
        """Returns once the job has no pods."""
        await self._until(lambda: not self.pods(handle))

    async def plant(self, spec: JobSpec) -> None:
        name = self._name_of(spec)
        kind = self.server.cluster.kinds.by_key(self.operated.resource)
        assert kind is not None
        labels = {"app": "nni-kubernetes-trial", "expId": spec.experiment_id, "trialId": spec.trial_id}
        body = {
            "apiVersion": f"{kind.group}/{kind.version}",
            "kind": kind.kind,
            "spec": dict(self.operated.foreign),
            "metadata": {"name": name, "namespace": "default", "labels": labels},
        }
        self.server.cluster.verbs.create(kind, "default", body)

    async def is_planted(self, spec: JobSpec) -> bool:
        found = [one["metadata"] for one in self._objects(self.operated.resource)]
        return [one["labels"].get("app") for one in found if one["name"] == self._name_of(spec)] == [
            "nni-kubernetes-trial"
        ]

    def _name_of(self, spec: JobSpec) -> str:
        platform = self.make()
        assert isinstance(platform, KubernetesPlatform)
        return platform.object_name(spec)

    async def traces(self, experiment_id: str) -> Collection[str]:
        return [
            f"{resource} {one['metadata']['name']}"
            for resource in (self.operated.resource, "pods", "secrets", "configmaps", "persistentvolumeclaims")
            for one in self._objects(resource)
            if (one["metadata"].get("labels") or {}).get("nni-manager/experiment") == experiment_id
        ]

    def _objects(self, resource: str) -> list[dict[str, Any]]:
        return list(self.server.cluster.store.all(resource, "default"))

    # The platform

    @property
    def sessions_seen(self) -> int:
        """Lists of the jobs: each connection makes one."""
        return self.server.cluster.counts.get(f"list {self.operated.resource.partition('.')[0]}", 0)

    async def start_hanging(self) -> None:
        self.control.fault(delay=3600.0, times=-1)

    async def end_hanging(self) -> None:
        self.server.cluster.faults.clear()

    async def lose_answer(self) -> None:
        self.control.fault(method="POST", path=f"/{self.operated.resource.partition('.')[0]}", drop="after")

    async def start_shortage(self) -> None:
        message = "jobs are forbidden: exceeded quota: team, requested: count=1, used: count=1, limited: count=1"
        self.control.fault(
            method="POST",
            path=f"/{self.operated.resource.partition('.')[0]}",
            times=-1,
            status=403,
            reason="Forbidden",
            message=message,
        )

    async def end_shortage(self) -> None:
        self.server.cluster.faults.clear()

    @property
    def remote_calls(self) -> int:
        return sum(self.server.cluster.counts.values())

    async def start_outage(self) -> None:
        await self.server.stop_listening()

    async def end_outage(self) -> None:
        await self.server.listen()

    def object_name(self, handle: JobHandle) -> str:
        found: str = re.sub(r'.*"name": "([^"]*)".*', r"\1", handle.data)
        return found

    def job_object(self, handle: JobHandle) -> dict[str, Any]:
        """The object of a job, as it is now."""
        name = self.object_name(handle)
        [found] = [one for one in self._objects(self.operated.resource) if one["metadata"]["name"] == name]
        return found

    def pods(self, handle: JobHandle) -> list[dict[str, Any]]:
        """Of a job, as they are now."""
        name = self.object_name(handle)
        everything = self.server.cluster.store.all("pods", "default")
        return [pod for pod in everything if (pod["metadata"].get("labels") or {}).get("nni-manager/job") == name]

    def _runs(self, job_name: str) -> bool:
        _, _, experiment_id, _, trial_id = job_name.split("_")
        for pod in self._objects("pods"):
            labels = pod["metadata"].get("labels") or {}
            ours = (labels.get("nni-manager/experiment"), labels.get("nni-manager/trial")) == (experiment_id, trial_id)
            if ours and pod["status"].get("phase") == "Running":
                return True
        return False

    def _hold_back(self, why: str = "1 Insufficient cpu") -> None:
        """No pod gets a node but those of jobs that were begun."""
        begun = "|".join(f"{re.escape(name)}-" for name in self._begun) or "(?!)"
        self.server.cluster.unschedulable.clear()
        self.control.unschedulable(f"^(?!{begun})", f"0/1 nodes are available: {why}.")

    def _release_all(self) -> None:
        self.control.schedulable()

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 (files and the fake's store send no events)
                await asyncio.sleep(_LOOK_AGAIN_S)
