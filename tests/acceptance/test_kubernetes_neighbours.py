"""Experiments in one namespace, of one or two daemons and of a real NNI: none touches another's objects.

The cluster's audit log shows it: the experiment of each object that was requested.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from nni_manager.kubernetes.api.names import CONFIG_MAPS, PODS, SECRETS, Resource
from tests.acceptance.kubernetes_cluster import OURS, TFJOBS, FakeCluster, final_after, of, tensorflow_config
from tests.live_daemon import LISTENING, Daemon, picked, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIALS = 2
_KINDS = ("tfjobs.kubeflow.org", "pods", "secrets", "configmaps")
_READS = ("get", "list", "watch")
_NNI = (TFJOBS, PODS, SECRETS, CONFIG_MAPS)


class Neighbour:
    """An experiment whose trials end on a signal of the test; every result is different."""

    def __init__(self, daemon: Daemon, kubeconfig: Path, folder: Path, go: Path, *, channel: str, first: int) -> None:
        self.daemon, self._go, self._first = daemon, go, first
        folder.mkdir()
        command = final_after(go, f"$(({first} + NNI_TRIAL_SEQ_ID))")
        config = tensorflow_config(kubeconfig, command, trials=TRIALS, at_once=TRIALS, channel=channel)
        self.config = folder / "experiment.yml"
        self.config.write_text(yaml.safe_dump(config))
        self.id = daemon.create(config, folder)

    def until_running(self) -> None:
        self.daemon.wait_for(self.id, lambda state: state["counts"].get("RUNNING", 0) == TRIALS)

    def finish(self) -> None:
        """Check that every trial has its own result after one attempt."""
        self._go.touch()
        self.daemon.wait(self.id, "DONE", timeout_s=60)
        found = picked(self.daemon.trials(self.id), "status", "finalValue")
        assert found == [("SUCCEEDED", self._first + number) for number in range(TRIALS)]
        assert picked(self.daemon.attempts(self.id), "number") == [(1,)] * TRIALS

    def remove(self) -> None:
        self.daemon.call("POST", f"/experiments/{self.id}/stop")
        self.daemon.wait(self.id, "STOPPED")
        self.daemon.call("DELETE", f"/experiments/{self.id}")


def test_experiments_of_one_namespace_never_touch_each_other(cluster: FakeCluster, tmp_path: Path) -> None:
    shared = cluster.share(tmp_path / "shared")
    with ExitStack() as stack:
        daemons, users = {}, {}
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
            daemons[name] = stack.enter_context(running_daemon(tmp_path / name, *LISTENING))
            users[name] = cluster.user(tmp_path, name, "system:masters")

        def neighbour(user: str, channel: str, first: int) -> Neighbour:
            folder = tmp_path / f"code-{first}"
            go = shared / f"go-{first}"
            return Neighbour(daemons[user], users[user], folder, go, channel=channel, first=first)

        stays, goes = neighbour("ann", "exec", 100), neighbour("ann", "push", 200)
        other = neighbour("bob", "exec", 300)
        for one in (stays, goes, other):
            one.until_running()
        left_by_nni = _put_what_nni_makes(cluster, stays.id)

        before = len(cluster.control("audit"))
        goes.remove()  # while the others run
        assert cluster.left(goes.id) == []
        written = [one for one in cluster.control("audit", since=before) if one["verb"] not in _READS]
        assert written and {_owner(one) for one in written} <= {goes.id, None}, written
        for one in (stays, other):
            assert len(cluster.objects(TFJOBS, of(one.id))) == len(cluster.objects(PODS, of(one.id))) == TRIALS

        daemons["ann"].kill()  # and finds its own jobs again, not the neighbour's
        daemons["ann"].start(*LISTENING)
        for one in (stays, other):
            one.finish()
            one.remove()
        assert cluster.left() == []
    entries = cluster.control("audit")
    _check(entries, "ann", {stays.id, goes.id})
    _check(entries, "bob", {other.id})
    assert _nni(cluster) == left_by_nni


def test_leftovers_of_a_lost_manager_are_removed_on_request(cluster: FakeCluster, tmp_path: Path) -> None:
    shared = cluster.share(tmp_path / "shared")
    with ExitStack() as stack:
        daemons = {}
        for name in ("lost", "new"):
            (tmp_path / name).mkdir()
            daemons[name] = stack.enter_context(running_daemon(tmp_path / name, *LISTENING))

        def neighbour(name: str, first: int) -> Neighbour:
            folder, go = tmp_path / f"code-{first}", shared / f"go-{first}"
            return Neighbour(daemons[name], cluster.kubeconfig, folder, go, channel="exec", first=first)

        left, stays = neighbour("lost", 100), neighbour("new", 200)
        for one in (left, stays):
            one.until_running()
        daemons["lost"].kill()
        shutil.rmtree(daemons["lost"].data)

        asked = _clean(daemons["new"], stays.config)
        assert asked.returncode == 1 and f"objects of {left.id} were kept; use --yes" in asked.stderr, asked
        assert f"experiment {left.id}, of another manager" in asked.stdout and stays.id not in asked.stdout
        assert len(cluster.objects(TFJOBS, of(left.id))) == TRIALS

        done = _clean(daemons["new"], stays.config, "--yes")
        assert done.returncode == 0 and f"experiment {left.id}: {TRIALS} TFJobs, " in done.stdout, done
        assert cluster.left(left.id) == []
        assert "There is nothing to clean" in _clean(daemons["new"], stays.config, "--yes").stdout
        stays.finish()
        stays.remove()


def test_platform_clean_starts_a_daemon_for_all_its_requests(cluster: FakeCluster, tmp_path: Path) -> None:
    """Nothing is open in its data directory, so it ends by itself; the command makes several requests."""
    shared = cluster.share(tmp_path / "shared")
    with running_daemon(tmp_path, *LISTENING) as daemon:
        folder = tmp_path / "code-left"
        left = Neighbour(daemon, cluster.kubeconfig, folder, shared / "go", channel="exec", first=100)
        left.until_running()
        daemon.kill()
        shutil.rmtree(daemon.data)
        done = _clean(daemon, left.config, "--yes")
        assert done.returncode == 0 and f"experiment {left.id}: {TRIALS} TFJobs, " in done.stdout, done
        assert cluster.left(left.id) == []


def test_objects_of_a_stop_in_an_outage_are_removed_later(cluster: FakeCluster, tmp_path: Path) -> None:
    shared = cluster.share(tmp_path / "shared")
    with running_daemon(tmp_path, *LISTENING) as daemon:
        one = Neighbour(daemon, cluster.kubeconfig, tmp_path / "code", shared / "go", channel="exec", first=100)
        one.until_running()
        one.finish()
        cluster.until(lambda: not cluster.objects(TFJOBS, of(one.id)))
        cluster.control("outage", seconds=8.0)
        cluster.until(lambda: not _is_listening(cluster))
        daemon.call("POST", f"/experiments/{one.id}/stop")
        daemon.wait(one.id, "STOPPED")
        assert daemon.status(one.id)["warnings"] == [], "no job may still run"
        daemon.kill()
        daemon.start(*LISTENING)
        cluster.until(lambda: _is_listening(cluster))
        cluster.until(lambda: not cluster.objects(CONFIG_MAPS, of(one.id)))
        assert cluster.left(one.id) == []


def _is_listening(cluster: FakeCluster) -> bool:
    try:
        cluster.control("met")
    except httpx.TransportError:
        return False
    return True


def _clean(daemon: Daemon, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nni_manager", "platform", "clean", "--data-dir", str(daemon.data)]
    return subprocess.run(
        [*command, "--config", str(config), *words],
        env=daemon.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def _owner(entry: dict[str, Any]) -> str | None:
    """The experiment of the object; None: no object."""
    return None if entry["labels"] is None else entry["labels"].get(OURS, "none of ours")


def _check(entries: list[dict[str, Any]], user: str, own: set[str]) -> None:
    """Check that requests for single objects were for its own, and that lists used our label."""
    told = [one for one in entries if one["user"] == user and one["resource"] in _KINDS and not one["dryRun"]]
    single = [one for one in told if one["name"]]
    assert {one["verb"] for one in single} >= {"create", "delete"}
    assert {_owner(one) for one in single} <= {*own, None}, [one for one in single if _owner(one) not in own]
    assert any(one["subresource"] == "exec" for one in single)
    assert all(OURS in one["selector"] or "nni-manager/job" in one["selector"] for one in told if not one["name"])


def _put_what_nni_makes(cluster: FakeCluster, experiment_id: str) -> dict[str, str]:
    """Create objects of a real NNI, of the same kinds and with the same experiment id; returns their uids."""
    labels = {"app": "nni", "expId": experiment_id, "trialId": "xyz", "platform": "kubeflow"}
    pod = {"containers": [{"name": "tensorflow", "image": "example/other:1", "command": ["sleep", "60"]}]}
    replicas = {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}}
    contents: dict[Resource, dict[str, Any]] = {
        TFJOBS: {"spec": {"tfReplicaSpecs": replicas}},
        PODS: {"spec": {**pod, "restartPolicy": "Never"}},
        SECRETS: {"type": "Opaque", "data": {}},
        CONFIG_MAPS: {"data": {}},
    }
    for resource, content in contents.items():
        meta = {"name": f"nniexp{experiment_id}envxyz".lower(), "labels": labels}
        cluster.create(
            resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **content}
        )
    return _nni(cluster)


def _nni(cluster: FakeCluster) -> dict[str, str]:
    """Name → uid."""
    found = {
        f"{resource.kind} {one['metadata']['name']}": one["metadata"]["uid"]
        for resource in _NNI
        for one in cluster.objects(resource, "app=nni")
    }
    assert len(found) == len(_NNI)
    return found
