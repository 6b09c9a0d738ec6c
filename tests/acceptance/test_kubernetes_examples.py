"""NNI's Kubeflow examples on a cluster, with fewer trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config.experiment_file import read_file
from tests.acceptance.kubernetes_cluster import FakeCluster, fake_cluster
from tests.live_daemon import LISTENING, Daemon, running_daemon
from tests.storage_places import folder_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).parents[1] / "config" / "nni_examples"
TRIALS = 2
_SCRIPT = """\
import json, os

with open(os.path.join(os.environ["NNI_SYS_DIR"], "parameter.cfg")) as file:
    parameters = json.load(file)["parameters"]
with open(os.environ["NNI_OUTBOX"], "a") as file:
    file.write(json.dumps({"type": "final", "value": float(os.environ["NNI_TRIAL_SEQ_ID"])}) + "\\n")
with open(os.path.join(os.environ["NNI_OUTPUT_DIR"], "model"), "w") as file:
    file.write(os.environ["NNI_TRIAL_JOB_ID"])
"""
#: Documented location of its files: in the exported folder or the share.
PLACES = {
    "seed-kubeflow-tf.yml": "nfs://10.10.10.10:/var/nfs/nni/nni/{place}",
    "seed-kubeflow-pytorch.yml": "nfs://10.10.10.10:/var/nfs/nni/nni/{place}",
    "seed-kubeflow-azure.yml": "https://examplestore.file.core.windows.net/example-share/nni/{place}",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "dist_mnist.py").write_text(_SCRIPT)
    (folder / "search_space.json").write_text((EXAMPLES / "search_space.json").read_text())
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    mounted = folder / "mounted"
    mounted.mkdir()
    with fake_cluster(folder, mounted, "--export", f"10.10.10.10:/var/nfs/nni={mounted}") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def at_home(cluster: FakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose cluster is set only by its environment."""
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}
    with running_daemon(tmp_path_factory.mktemp("home"), *LISTENING, environment=environment) as daemon:
        yield daemon


@pytest.mark.parametrize("name", PLACES)
def test_documented_example_runs(at_home: Daemon, cluster: FakeCluster, code: Path, name: str) -> None:
    daemon, mounted = at_home, cluster.mounted
    text = (EXAMPLES / name).read_text()
    file = code / name
    file.write_text(text.replace("maxTrialNum: 20", "maxTrialNum: 2").replace("maxTrialNum: 10", "maxTrialNum: 2"))
    id_ = create(daemon, code, file)
    daemon.wait(id_, "DONE", timeout_s=90)
    trials = daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
    assert [(trial["status"], trial["finalValue"]) for trial in trials] == [("SUCCEEDED", 0), ("SUCCEEDED", 1)]
    if "azure" in name:
        (mounted,) = [path for path in cluster.kubeconfig.parent.rglob("example-share") if path.is_dir()]
    for trial in trials:
        place = folder_of(mounted / "nni", id_) / trial["id"]
        assert trial["link"] == PLACES[name].format(place=place.relative_to(mounted / "nni"))
        assert (place / "model").read_text() == trial["id"]
    daemon.call("POST", f"/experiments/{id_}/stop")
    daemon.wait(id_, "STOPPED")
    assert cluster.left(id_) == []


def create(daemon: Daemon, code: Path, file: Path) -> str:
    """The example's text; if it uses a vault, which this cluster lacks, with an additional storage key."""
    text = file.read_text()
    if "keyVault" in text:
        config: dict[str, Any] = dict(read_file(file).spec.canonical)
        del config["experimentWorkingDirectory"]  # the example has no such field
        (section,) = (
            config["trainingService"] if isinstance(config["trainingService"], list) else [config["trainingService"]]
        )
        section["storage"] = {**section["storage"], "azureAccountKey": "a2V5"}
        text = json.dumps(config)
    body = {"config": text, "directory": str(code), "environment": {}, "interpreter": sys.executable}
    return str(daemon.call("POST", "/experiments", json=body)["id"])
