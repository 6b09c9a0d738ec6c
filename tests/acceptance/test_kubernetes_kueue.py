"""A queued experiment, through the daemon: waits state the queue's reason, and preemptions cost no retry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.kubernetes.api.names import Resource
from tests.acceptance.kubernetes_cluster import BATCH_JOBS, FakeCluster, fake_cluster, of
from tests.live_daemon import Daemon, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

#: The first two attempts run until they are taken away.
_COMMAND = """case "$NNI_SYS_DIR" in *-3) ;; *) sleep 600 ;; esac
echo '{"type": "final", "value": 7}' >> "$NNI_OUTBOX" """
_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
_NO_QUOTA = "insufficient unused quota for cpu in flavor default, 1 more needed"


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[FakeCluster]:
    """A cluster with Kueue and the queue `team`."""
    (tmp_path / "mounted").mkdir()
    with fake_cluster(tmp_path, tmp_path / "mounted", "--kueue", "v1beta2") as found:
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {}}
        found.create_at("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues", body)
        yield found


def newest_job(queues: FakeCluster, id_: str, attempt: int) -> str:
    """The name of the only job, once it is that of this attempt and has a Workload."""
    suffix = f"-{attempt}" if attempt > 1 else ""

    def look() -> str:
        names = [one["metadata"]["name"] for one in queues.objects(BATCH_JOBS, of(id_))]
        workloads = queues.objects_everywhere(_WORKLOADS)
        queued = {one["metadata"]["ownerReferences"][0]["name"] for one in workloads}
        return next((name for name in names if len(names) == 1 and name.endswith(suffix) and name in queued), "")

    return str(queues.until(look))


@pytest.mark.parametrize("channel", ["push", "exec"])
def test_preemptions_by_a_queue_cost_no_retry(
    shared: Daemon, queues: FakeCluster, tmp_path: Path, channel: str
) -> None:
    (code := tmp_path / "code").mkdir()
    service = {
        "platform": "kubernetes",
        "dockerImage": "example/trial:1",
        "trialMemorySize": "64Mi",
        "channel": channel,
        "nniManagerIp": "127.0.0.1",
        "queueName": "team",
        "kubeconfig": str(queues.kubeconfig),
    }
    id_ = shared.create(_config(service), code)
    for attempt in (1, 2, 3):
        name = newest_job(queues, id_, attempt)
        queues.control("kueue_hold", namespace="default", name=name, reason="WaitingForQuota", message=_NO_QUOTA)
        queues.until(lambda: f"Kueue's queue team: {_NO_QUOTA}" in str(picked(shared.trials(id_), "wait")))
        queues.control("kueue_admit", namespace="default", name=name)
        if attempt < 3:
            shared.wait_for(id_, lambda state: state["counts"].get("RUNNING", 0) == 1)
            queues.control("kueue_evict", namespace="default", name=name, reason="Preempted", message="another's turn")
    shared.wait(id_, "DONE", timeout_s=60)
    assert picked(shared.trials(id_), "status", "finalValue") == [("SUCCEEDED", 7)]
    assert picked(shared.attempts(id_), "number", "givenUp") == [(1, "UNCOUNTED"), (2, "UNCOUNTED"), (3, None)]
    assert picked(shared.attempts(id_), "state")[:2] == [("PREEMPTED",)] * 2


def _config(service: dict[str, Any]) -> dict[str, Any]:
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": _COMMAND,
        "trialCodeDirectory": ".",
        "trialConcurrency": 1,
        "maxTrialNumber": 1,
        "maxPlatformRetries": 0,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": service,
    }
