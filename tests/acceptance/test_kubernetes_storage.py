"""Cluster storage that this machine does not mount: working cases, and messages of trials in other cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.kubernetes.api.names import CLAIMS
from tests.acceptance.kubernetes_cluster import EXPORT, SERVER, FakeCluster, fake_cluster, tensorflow_config
from tests.live_daemon import Daemon, picked
from tests.storage_places import folder_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

#: A folder in which no user may create files, not even root.
_CLOSED = "/sys/kernel"
_REPORT = 'echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX"'
_COMMAND = f'{_REPORT}; echo "$NNI_TRIAL_JOB_ID" > "$NNI_OUTPUT_DIR/model"'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with fake_cluster(folder, folder, "--export", f"10.0.0.2:/closed={_CLOSED}") as cluster:
        yield cluster


def create(daemon: Daemon, cluster: FakeCluster, folder: Path, storage: dict[str, Any] | None, **fields: Any) -> str:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    mounted = {"storage": storage} if storage is not None else {}
    return daemon.create(tensorflow_config(cluster.kubeconfig, _COMMAND, **mounted, **fields), code)


@pytest.mark.parametrize("channel", ["push", "exec"])
@pytest.mark.parametrize("kind", ["nfs", "pvc"])
def test_output_of_a_trial_is_on_the_storage(
    shared: Daemon, cluster: FakeCluster, tmp_path: Path, kind: str, channel: str
) -> None:
    if kind == "pvc":
        name = f"data-{channel}"
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": name}
        cluster.create(CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
        storage = {"storageType": "pvc", "path": "/nowhere", "claimName": name}
    else:
        storage = {"storageType": "nfs", "server": SERVER, "path": EXPORT}
    id_ = create(shared, cluster, tmp_path, storage, channel=channel)
    shared.wait(id_, "DONE", timeout_s=60)
    (trial,) = shared.call("GET", f"/experiments/{id_}/trials")["trials"]
    assert (trial["status"], trial["finalValue"]) == ("SUCCEEDED", 1)
    folder = cluster.kubeconfig.parents[1]
    if kind == "pvc":
        folder = next(path for path in cluster.kubeconfig.parent.rglob(name) if path.parent.name == "default")
    root = folder / "nni"
    place = folder_of(root, id_) / trial["id"]
    if kind != "pvc":
        assert trial["link"] == f"nfs://{SERVER}:{EXPORT}/nni/{place.relative_to(root)}"
    assert (place / "model").read_text().strip() == trial["id"]


def test_read_only_storage_is_named(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    """Like an export with root_squash."""
    id_ = create(shared, cluster, tmp_path, {"storageType": "nfs", "server": "10.0.0.2", "path": "/closed"})
    shared.wait(id_, "DONE", timeout_s=90)
    rows = picked(shared.attempts(id_), "state", "exitCode", "message", "stderrTail")
    assert {(state, code) for state, code, _, _ in rows} == {("FAILED", 126)}, rows
    assert all("let user 0 write on the storage" in tail and "root_squash" in tail for *_, tail in rows), rows
    (trial,) = shared.call("GET", f"/experiments/{id_}/trials")["trials"]
    assert "cannot be created" in trial["message"], trial


def test_missing_export_is_a_wait_reason(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> None:
    id_ = create(shared, cluster, tmp_path, {"storageType": "nfs", "server": "10.0.0.9", "path": "/none"})

    def sentence() -> str:
        (trial,) = shared.call("GET", f"/experiments/{id_}/trials")["trials"] or [{}]
        return str((trial.get("wait") or {}).get("sentence") or "")

    cluster.until(lambda: "access denied by server while mounting 10.0.0.9:/none" in sentence())
    shared.call("POST", f"/experiments/{id_}/stop")
    shared.wait(id_, "STOPPED")
