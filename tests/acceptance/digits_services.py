"""Services on which the digits example can run: the section of its config, and the jobs of each service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import installed
from tests.acceptance.kubernetes_cluster import fake_cluster
from tests.fakes.aml.server import serving as serving_aml
from tests.fakes.aml.workspace import ENDED as AML_ENDED
from tests.fakes.aml.workspace import Workspace
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.jobs import ENDED as DLC_ENDED
from tests.fakes.dlc.server import serving as serving_dlc
from tests.fakes.dlc.service import DlcService
from tests.fakes.dlts.cluster import ACTIVE
from tests.fakes.process import running

CONFIGS = Path(__file__).parents[2] / "configs"
#: Packages in the images of the example, with their dependencies.
_PACKAGE = "scikit-learn"
#: Not imported here: it replaces packages.
_SMALL = Path(__file__).with_name("small_learning.py")
_OVER_AT_OPENPAI = ("SUCCEEDED", "STOPPED", "FAILED")
_JOBS = ("tfjobs", "frameworks", "adaptdljobs", "jobs")
Section = dict[str, Any]
#: Name of each job → whether it has ended without leftovers.
Jobs = Callable[[], dict[str, bool]]


@dataclass(frozen=True, slots=True)
class Service:
    section: Section
    jobs: Jobs


def example(platform: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((CONFIGS / f"digits-{platform}.yml").read_text())
    return config


def image(folder: Path) -> dict[str, str]:
    """Variables of images that contain only scikit-learn and its dependencies."""
    folder.mkdir()
    for place in {place for name in installed.needed_by(_PACKAGE) for place in installed.places(name)}:
        (folder / place.name).symlink_to(place)
    return {"PYTHONPATH": str(folder)}


def small_image(folder: Path) -> dict[str, str]:
    """Variables of images with a small replacement for the packages that the example imports."""
    folder.mkdir()
    for name in ("numpy.py", "sklearn.py"):
        (folder / name).symlink_to(_SMALL)
    return {"PYTHONPATH": str(folder)}


@contextmanager
def openpai(folder: Path, _environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Service]:
    (folder / "nfs").mkdir()
    with running("openpai", folder / "cluster") as fake:
        fake.control("reset", users={"alice": {"tokens": ["t0ken"]}}, storages={"team-nfs": str(folder / "nfs")})
        section = {
            "host": fake.address,
            "token": "t0ken",
            "localStorageMountPoint": str(folder / "nfs"),
            "containerStorageMountPoint": str(folder / "there"),
        }
        yield Service(section, lambda: {one["name"]: one["state"] in _OVER_AT_OPENPAI for one in fake.control("jobs")})


@contextmanager
def dlts(folder: Path, _environment: pytest.MonkeyPatch, data: Path) -> Iterator[Service]:
    """The manager runs where pods run: both see its folder under the same path."""
    with running("dlts", folder / "cluster") as fake:
        users = {"alice@example.com": {"password": "passw0rd", "teams": ["platform"]}}
        fake.control("reset", users=users, mounts=[[str(data)] * 2])
        section = {"dashboard": f"{fake.address}/", "password": "passw0rd"}
        yield Service(section, lambda: {one["jobId"]: one["jobStatus"] not in ACTIVE for one in fake.control("jobs")})


@contextmanager
def aml(folder: Path, environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Service]:
    """Give daemons that start from now on the identity of the machine."""
    section = example("aml")["trainingService"]
    resource = (
        f"/subscriptions/{section['subscriptionId']}/resourceGroups/{section['resourceGroup']}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{section['workspaceName']}"
    )
    workspace = Workspace(folder / "workspace", resource, computes=(section["computeTarget"],))
    with serving_aml(workspace, ["entra-t0ken"]):
        environment.setenv("IDENTITY_ENDPOINT", f"{workspace.address}/msi/token")
        environment.setenv("IDENTITY_HEADER", "of the machine")
        section = {"endpoint": workspace.address, "storageEndpoint": workspace.address}
        yield Service(section, lambda: {name: job["status"] in AML_ENDED for name, job in workspace.jobs.items()})
        workspace.destroy_all()


@contextmanager
def dlc(folder: Path, environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Service]:
    section = example("dlc")["trainingService"]
    (folder / "nas").mkdir()
    there = str(folder / "there")
    source = Source(folder=folder / "nas", mount=there)
    containers = Containers(folder=folder / "containers", sources={section["nasDataSourceId"]: source})
    service = DlcService(folder / "service", containers, keys={section["accessKeyId"]: "k3y"})
    environment.setenv("ALIBABA_ACCESS_KEY_SECRET", "k3y")
    with serving_dlc(service) as port:
        section = {
            "endpoint": f"http://127.0.0.1:{port}",
            "localStorageMountPoint": str(folder / "nas"),
            "containerStorageMountPoint": there,
        }
        yield Service(section, lambda: {one.name: one.status in DLC_ENDED for one in service.jobs.by_id.values()})
        service.kill_all()


@contextmanager
def cluster(folder: Path, _environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Service]:
    """Of Kubernetes."""
    (folder / "mounted").mkdir()
    with fake_cluster(folder, folder / "mounted") as fake:

        def jobs() -> dict[str, bool]:
            created = [one for one in fake.control("audit") if one["verb"] == "create" and not one["dryRun"]]
            names = [one["name"] for one in created if one["resource"].partition(".")[0] in _JOBS]
            assert len(names) == len(set(names)), "a job was created twice"
            is_over = not fake.left()
            return dict.fromkeys(names, is_over)

        yield Service({"kubeconfig": str(fake.kubeconfig)}, jobs)


#: By the name of their example. Each is created from a folder, the daemon's variables, and its data folder.
SERVICES: dict[str, Callable[[Path, pytest.MonkeyPatch, Path], AbstractContextManager[Service]]] = {
    "openpai": openpai,
    "dlts": dlts,
    "aml": aml,
    "dlc": dlc,
    "kubeflow": cluster,
    "frameworkcontroller": cluster,
    "adl": cluster,
    "kubernetes": cluster,
}
