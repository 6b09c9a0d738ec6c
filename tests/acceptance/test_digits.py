"""The digits example on services of others: its file, with another `trainingService`, and two trials."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.kubernetes_cluster import fake_cluster
from tests.fakes import containers
from tests.fakes.aml.server import serving as serving_aml
from tests.fakes.aml.workspace import Workspace
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.server import serving as serving_dlc
from tests.fakes.dlc.service import DlcService
from tests.fakes.process import running
from tests.live_daemon import running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]
CONFIGS = Path(__file__).parents[2] / "configs"
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
TRIALS, EPOCHS = int(os.environ.get("NNI_DIGITS_TRIALS", "2")), 15
#: What the images of the example have beside Python.
_PACKAGES = ("numpy", "scipy", "sklearn", "joblib", "threadpoolctl")
Section = dict[str, Any]


@contextmanager
def openpai(folder: Path, _environment: pytest.MonkeyPatch) -> Iterator[Section]:
    (folder / "nfs").mkdir()
    with running("openpai", folder / "cluster") as fake:
        fake.control("reset", users={"alice": {"tokens": ["t0ken"]}}, storages={"team-nfs": str(folder / "nfs")})
        yield {
            "host": fake.address, "token": "t0ken", "localStorageMountPoint": str(folder / "nfs"),
            "containerStorageMountPoint": str(folder / "there"),
        }  # fmt: skip


@contextmanager
def dlts(folder: Path, _environment: pytest.MonkeyPatch) -> Iterator[Section]:
    with running("dlts", folder / "cluster") as fake:
        fake.control("reset", users={"alice@example.com": {"password": "passw0rd", "teams": ["platform"]}})
        yield {"dashboard": f"{fake.address}/", "password": "passw0rd"}


@contextmanager
def aml(folder: Path, environment: pytest.MonkeyPatch) -> Iterator[Section]:
    example = _example("aml")["trainingService"]
    resource = (
        f"/subscriptions/{example['subscriptionId']}/resourceGroups/{example['resourceGroup']}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{example['workspaceName']}"
    )
    workspace = Workspace(folder / "workspace", resource, computes=(example["computeTarget"],))
    with serving_aml(workspace, ["entra-t0ken"]):
        environment.setenv("IDENTITY_ENDPOINT", f"{workspace.address}/msi/token")
        environment.setenv("IDENTITY_HEADER", "of the machine")
        yield {"endpoint": workspace.address, "storageEndpoint": workspace.address}
        workspace.destroy_all()


@contextmanager
def dlc(folder: Path, environment: pytest.MonkeyPatch) -> Iterator[Section]:
    example = _example("dlc")["trainingService"]
    (folder / "nas").mkdir()
    there = str(folder / "there")
    source = Source(folder=folder / "nas", mount=there)
    jobs = Containers(folder=folder / "containers", sources={example["nasDataSourceId"]: source})
    service = DlcService(folder / "service", jobs, keys={example["accessKeyId"]: "k3y"})
    environment.setenv("ALIBABA_ACCESS_KEY_SECRET", "k3y")
    with serving_dlc(service) as port:
        yield {
            "endpoint": f"http://127.0.0.1:{port}", "localStorageMountPoint": str(folder / "nas"),
            "containerStorageMountPoint": there,
        }  # fmt: skip
        service.kill_all()


@contextmanager
def cluster(folder: Path, _environment: pytest.MonkeyPatch) -> Iterator[Section]:
    """Of Kubernetes. Its pods have what a template gives them, not what images of other fakes bring."""
    image = json.loads(os.environ[containers.IMAGE])
    container = {"env": [{"name": name, "value": value} for name, value in image.items()]}
    (folder / "mounted").mkdir()
    with fake_cluster(folder, folder / "mounted") as fake:
        fake.control("hide", path=str(CONFIGS))
        yield {"kubeconfig": str(fake.kubeconfig), "podTemplate": {"spec": {"containers": [container]}}}


#: By the name of their example.
SERVICES: dict[str, Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Section]]] = {
    "openpai": openpai, "dlts": dlts, "aml": aml, "dlc": dlc, "kubeflow": cluster, "frameworkcontroller": cluster,
    "adl": cluster,
}  # fmt: skip


@pytest.mark.parametrize("platform", SERVICES)
def test_the_digits_example_runs_there(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(containers.IMAGE, json.dumps({"PYTHONPATH": str(_image(tmp_path / "image"))}))
    (tmp_path / "far").mkdir()
    config, service = _example(platform), SERVICES[platform]
    with service(tmp_path / "far", monkeypatch) as section, running_daemon(tmp_path, *LISTENING) as daemon:
        config["trainingService"] |= {"nniManagerIp": "127.0.0.1", **section}
        id = daemon.create({**config, "maxTrialNumber": TRIALS}, CONFIGS)
        daemon.wait(id, "DONE", timeout_s=90)
        trials = daemon.call("GET", f"/experiments/{id}/trials")["trials"]
    assert [trial["status"] for trial in trials] == ["SUCCEEDED"] * TRIALS
    assert all(0.05 < trial["finalValue"] <= 1 and trial["intermediates"] == EPOCHS for trial in trials)


def _example(platform: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((CONFIGS / f"digits-{platform}.yml").read_text())
    return config


def _image(folder: Path) -> Path:
    """These packages, and nothing else of ours."""
    folder.mkdir()
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None, name
        place = Path(found.origin)
        place = place.parent if place.name == "__init__.py" else place
        for one in (place, *place.parent.glob(f"*{name.removeprefix('sk')}*.libs")):
            (folder / one.name).symlink_to(one)
    return folder
