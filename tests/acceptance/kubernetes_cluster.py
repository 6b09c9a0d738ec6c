"""A fake cluster as a separate process, for experiments of a real daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from nni_manager.kubernetes.api.access import Access
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import CONFIG_MAPS, PODS, SECRETS, Resource
from tests.fork_server.popen import Popen

TFJOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
FRAMEWORKS = Resource("frameworkcontroller.microsoft.com", "v1", "frameworks", "Framework")
ADAPTDLJOBS = Resource("adaptdl.petuum.com", "v1", "adaptdljobs", "AdaptDLJob")
BATCH_JOBS = Resource("batch", "v1", "jobs", "Job")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
#: An NFS export backed by a local folder.
SERVER, EXPORT = "10.0.0.1", "/export"
_KINDS = (TFJOBS, PYTORCHJOBS, FRAMEWORKS, ADAPTDLJOBS, BATCH_JOBS, PODS, SECRETS, CONFIG_MAPS)
_LOOK_AGAIN_S = 0.05
#: Selects the objects of all our experiments.
OURS = "nni-manager/experiment"


def of(experiment_id: str) -> str:
    """Selects its objects."""
    return f"{OURS}={experiment_id}"


def tensorflow_config(
    kubeconfig: Path, command: str, *, trials: int = 1, at_once: int = 1, **section: Any
) -> dict[str, Any]:
    """Config of an experiment of TFJobs with one pod each. `section`: more fields of the training service."""
    worker = {"replicas": 1, "command": command, "cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1"}
    service = {
        "platform": "kubeflow",
        "operator": "tf-operator",
        "apiVersion": "v1",
        "worker": worker,
        "nniManagerIp": "127.0.0.1",
        "kubeconfig": str(kubeconfig),
    }
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCodeDirectory": ".",
        "trialConcurrency": at_once,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {**service, **section},
    }


def final_after(go: Path, value: str) -> str:
    """Command that reports a final result, a shell expression, once this file exists."""
    return (
        f"while [ ! -e {go} ]; do sleep 0.05; done; "
        f'echo "{{\\"type\\": \\"final\\", \\"value\\": {value}}}" >> "$NNI_OUTBOX"'
    )


@dataclass(frozen=True)
class FakeCluster:
    kubeconfig: Path
    address: str
    #: Contents of its NFS export.
    mounted: Path

    def control(self, method: str, /, **told: Any) -> Any:
        """Cause a fault: a method of `tests.fakes.kubernetes.control.Control`."""
        answer = httpx.post(f"{self.address}{method}", json=told, verify=False)
        assert answer.is_success, answer.text
        return answer.json()

    def share(self, folder: Path) -> Path:
        """Create a folder that pods share, to communicate with them."""
        folder.mkdir()
        self.control("share", path=str(folder))
        return folder

    def objects(self, resource: Resource, selector: str = OURS) -> list[dict[str, Any]]:
        return asyncio.run(self._objects([resource], selector))

    def objects_everywhere(self, resource: Resource) -> list[dict[str, Any]]:
        """Of all namespaces, or of none."""
        group = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"

        async def listed() -> list[dict[str, Any]]:
            async with self._client() as cluster:
                told = await cluster.call("GET", f"{group}/{resource.plural}")
            found: list[dict[str, Any]] = told["items"]
            return found

        return asyncio.run(listed())

    def user(self, folder: Path, name: str, *groups: str) -> Path:
        """The kubeconfig of another user."""
        return self.with_token(folder, self.control("user", name=name, groups=groups)["token"], name)

    def with_token(self, folder: Path, token: str, name: str) -> Path:
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"] = [
            {"name": name, "user": {"token": token}}
        ]  # a separate name, so that it gets a separate connection
        config["contexts"][0]["context"]["user"] = name
        path = folder / f"kubeconfig-of-{name}"
        path.write_text(yaml.safe_dump(config))
        return path

    def create(self, resource: Resource, body: dict[str, Any]) -> None:
        self.create_at(resource.path("default"), body)

    def create_at(self, path: str, body: dict[str, Any]) -> None:
        async def create() -> None:
            async with self._client() as cluster:
                await cluster.call("POST", path, body=body)

        asyncio.run(create())

    def remove(self, resource: Resource, name: str) -> None:
        """Of no namespace."""

        async def remove() -> None:
            async with self._client() as cluster:
                await cluster.call("DELETE", f"/apis/{resource.api_version}/{resource.plural}/{name}", body={})

        asyncio.run(remove())

    def until(self, look: Callable[[], Any], seconds: float = 30) -> Any:
        """The first true answer."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(_LOOK_AGAIN_S)
        return found

    def left(self, experiment_id: str = "") -> list[str]:
        """Names of our objects, or of an experiment's, after pending deletions have finished."""
        return asyncio.run(self._left(of(experiment_id) if experiment_id else OURS))

    async def _left(self, selector: str) -> list[str]:
        for _ in range(100):
            found = await self._objects(_KINDS, selector)
            if not found:
                break
            await asyncio.sleep(0.1)
        return [f"{one.get('kind', '')} {one['metadata']['name']}" for one in found]

    async def _objects(self, kinds: Any, selector: str) -> list[dict[str, Any]]:
        async with self._client() as cluster:
            return [one for kind in kinds for one in await cluster.list(kind, selector)]

    @contextlib.asynccontextmanager
    async def _client(self) -> Any:
        cluster = Cluster("test")
        await cluster.use(Access(kubeconfig=str(self.kubeconfig)).to_text())
        try:
            yield cluster
        finally:
            await cluster.close()


@contextlib.contextmanager
def fake_cluster(folder: Path, mounted: Path, *options: str) -> Iterator[FakeCluster]:
    """`options`: of `python -m tests.fakes.kubernetes`."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.fakes.kubernetes",
        "--folder",
        folder / "cluster",
        "--back-off",
        "0.1",
        "--export",
        f"{SERVER}:{EXPORT}={mounted}",
        *options,
    ]
    root = Path(__file__).parents[2]
    with Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield FakeCluster(Path(told["kubeconfig"]), told["control"], mounted)
        finally:
            process.terminate()
