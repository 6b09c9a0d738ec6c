"""The digits example on services of others: its file, with another `trainingService`, and two trials."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import installed
from tests.acceptance.kubernetes_cluster import fake_cluster
from tests.fakes import containers
from tests.fakes.aml.server import serving as serving_aml
from tests.fakes.aml.workspace import Workspace
from tests.fakes.dlc.containers import Containers, Source
from tests.fakes.dlc.server import serving as serving_dlc
from tests.fakes.dlc.service import DlcService
from tests.fakes.process import running
from tests.live_daemon import LISTENING, Daemon, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]
CONFIGS = Path(__file__).parents[2] / "configs"
TRIALS, EPOCHS = int(os.environ.get("NNI_DIGITS_TRIALS", "2")), 15
#: What the images of the example have beside Python, with all that it needs.
_PACKAGE = "scikit-learn"
Section = dict[str, Any]


@contextmanager
def openpai(folder: Path, _environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Section]:
    (folder / "nfs").mkdir()
    with running("openpai", folder / "cluster") as fake:
        fake.control("reset", users={"alice": {"tokens": ["t0ken"]}}, storages={"team-nfs": str(folder / "nfs")})
        yield {
            "host": fake.address, "token": "t0ken", "localStorageMountPoint": str(folder / "nfs"),
            "containerStorageMountPoint": str(folder / "there"),
        }  # fmt: skip


@contextmanager
def dlts(folder: Path, _environment: pytest.MonkeyPatch, data: Path) -> Iterator[Section]:
    """The manager runs where pods run: both see its folder under the same path."""
    with running("dlts", folder / "cluster") as fake:
        users = {"alice@example.com": {"password": "passw0rd", "teams": ["platform"]}}
        fake.control("reset", users=users, mounts=[[str(data)] * 2])
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
def dlc(folder: Path, environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Section]:
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
def cluster(folder: Path, _environment: pytest.MonkeyPatch, _data: Path) -> Iterator[Section]:
    """Of Kubernetes. Its pods have what a template gives them, not what images of other fakes bring."""
    image = json.loads(os.environ[containers.IMAGE])
    container = {"env": [{"name": name, "value": value} for name, value in image.items()]}
    (folder / "mounted").mkdir()
    with fake_cluster(folder, folder / "mounted") as fake:
        yield {"kubeconfig": str(fake.kubeconfig), "podTemplate": {"spec": {"containers": [container]}}}


#: By the name of their example; those that a daemon needs nothing of its own for. Made of a folder, its variables
#: and the daemon's data folder.
SERVICES: dict[str, Callable[[Path, pytest.MonkeyPatch, Path], AbstractContextManager[Section]]] = {
    "openpai": openpai, "dlts": dlts, "dlc": dlc, "kubeflow": cluster, "frameworkcontroller": cluster,
    "adl": cluster,
}  # fmt: skip


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a service, whose containers have what the example needs."""
    monkeypatch.setenv(containers.IMAGE, json.dumps({"PYTHONPATH": str(_image(tmp_path / "image"))}))
    (tmp_path / "far").mkdir()
    return tmp_path / "far"


@pytest.mark.parametrize("platform", SERVICES)
def test_the_digits_example_runs_there(
    shared: Daemon, platform: str, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SERVICES[platform](far, monkeypatch, shared.data) as section:
        _search(shared, platform, section)


def test_the_digits_example_runs_on_azure(far: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its daemon has the identity of the machine, which it is started with."""
    with aml(far, monkeypatch) as section, running_daemon(tmp_path, *LISTENING) as daemon:
        _search(daemon, "aml", section)


def _search(daemon: Daemon, platform: str, section: Section) -> None:
    config = _example(platform)
    config["trainingService"] |= {"nniManagerIp": "127.0.0.1", **section}
    id = daemon.create({**config, "maxTrialNumber": TRIALS}, CONFIGS)
    daemon.wait(id, "DONE", timeout_s=90)
    trials = daemon.trials(id)
    daemon.call("POST", f"/experiments/{id}/stop")
    assert [trial["status"] for trial in trials] == ["SUCCEEDED"] * TRIALS
    assert all(0.05 < trial["finalValue"] <= 1 and trial["intermediates"] == EPOCHS for trial in trials)


def _example(platform: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((CONFIGS / f"digits-{platform}.yml").read_text())
    return config


def _image(folder: Path) -> Path:
    """scikit-learn and what it needs, and nothing else of ours."""
    folder.mkdir()
    for place in {place for name in installed.needed_by(_PACKAGE) for place in installed.places(name)}:
        (folder / place.name).symlink_to(place)
    return folder
