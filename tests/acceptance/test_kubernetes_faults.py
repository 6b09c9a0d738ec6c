"""Faults of experiments on a cluster, through the daemon: no trial is lost, and none runs twice."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.kubernetes_cluster import PODS, TFJOBS, FakeCluster, final_after, of, tensorflow_config
from tests.live_daemon import LISTENING, Daemon, picked, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

#: Seconds of an API server outage; for a release two minutes.
OUTAGE_S = float(os.environ.get("NNI_TEST_OUTAGE_S", "2"))
WATCHES = 100


class ClusterRun:
    """An experiment whose trials end on a signal of the test, with their number as result."""

    def __init__(self, daemon: Daemon, cluster: FakeCluster, folder: Path) -> None:
        self.daemon, self.cluster, self._folder = daemon, cluster, folder
        self._go = cluster.share(folder / "shared") / "go"
        self.id = ""

    def create(
        self,
        trials: int,
        at_once: int,
        kubeconfig: Path | None = None,
        metric_grace: str = "10s",
        channel: str = "push",
    ) -> None:
        command = final_after(self._go, "$NNI_TRIAL_SEQ_ID")
        code = self._folder / "code"
        code.mkdir()
        config = tensorflow_config(
            kubeconfig or self.cluster.kubeconfig, command, trials=trials, at_once=at_once, channel=channel
        )
        self.id = self.daemon.create({**config, "metricGrace": metric_grace}, code)

    def go(self) -> None:
        """Let trials end."""
        self._go.touch()

    def restart(self) -> None:
        """Restart the daemon after a kill."""
        self.daemon.start(*LISTENING)

    def until_running(self, trials: int) -> None:
        self.daemon.wait_for(self.id, lambda state: state["counts"].get("RUNNING", 0) == trials)

    def met(self) -> int:
        """Number of failed requests to the cluster so far."""
        return int(self.cluster.control("met")["requests"])

    def ends(self) -> list[tuple[Any, ...]]:
        """(sequence id, status, result) of each trial."""
        return picked(self.daemon.trials(self.id), "sequenceId", "status", "finalValue")

    def check(self, trials: int) -> None:
        """Check that every trial succeeded at its first attempt, with exactly one job."""
        self.daemon.wait(self.id, "DONE", timeout_s=OUTAGE_S + 60)
        assert self.ends() == [(number, "SUCCEEDED", number) for number in range(trials)]
        assert picked(self.daemon.attempts(self.id), "number") == [(1,)] * trials
        ever = self.cluster.control("timeline", resource="tfjobs.kubeflow.org")
        assert sum(self.id in name for name in ever) == trials


@pytest.fixture
def run_on_own_daemon(cluster: FakeCluster, tmp_path: Path) -> Iterator[ClusterRun]:
    """An experiment with its own daemon, to be killed."""
    with running_daemon(tmp_path, *LISTENING) as daemon:
        yield ClusterRun(daemon, cluster, tmp_path)
    cluster.control("clear")


@pytest.fixture
def cluster_run(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> Iterator[ClusterRun]:
    cluster_run = ClusterRun(shared, cluster, tmp_path)
    yield cluster_run
    cluster.control("clear")
    if cluster_run.id:
        shared.call("POST", f"/experiments/{cluster_run.id}/stop")


def test_daemon_killed_around_each_call_submits_nothing_twice(run_on_own_daemon: ClusterRun) -> None:
    """Kills before a create, during a delayed create, between a job and its Secret, and during a watch."""
    around: list[dict[str, Any]] = [
        {"path": "/tfjobs", "drop": "before"},
        {"path": "/tfjobs", "delay": 1.0},
        {"path": "/secrets", "delay": 60.0},
    ]
    for number, fault in enumerate(around):
        met = run_on_own_daemon.met()
        run_on_own_daemon.cluster.control("fault", method="POST", **fault, times=-1)
        if number == 0:
            run_on_own_daemon.create(trials=3, at_once=3)
        else:
            run_on_own_daemon.restart()
        run_on_own_daemon.cluster.until(lambda before=met: run_on_own_daemon.met() >= before + 3)
        run_on_own_daemon.daemon.kill()
        run_on_own_daemon.cluster.control("clear")
    run_on_own_daemon.restart()
    run_on_own_daemon.until_running(3)
    run_on_own_daemon.daemon.kill()
    run_on_own_daemon.cluster.control("break-watches")
    run_on_own_daemon.go()
    run_on_own_daemon.restart()
    run_on_own_daemon.check(3)


def test_api_server_outages_and_broken_watches_cost_no_trial(cluster_run: ClusterRun) -> None:
    cluster_run.create(trials=3, at_once=2)
    cluster_run.until_running(2)
    for _ in range(WATCHES):
        cluster_run.cluster.control("break-watches")
    cluster_run.cluster.control("outage", seconds=OUTAGE_S)
    cluster_run.daemon.wait_for(cluster_run.id, lambda state: state["services"][0]["status"] == "away")
    cluster_run.go()
    cluster_run.check(3)


def test_jobs_of_a_stop_during_an_outage_end_after_it(cluster_run: ClusterRun) -> None:
    """The daemon ends the jobs on its own, without a request or another experiment there.

    Only the API server can end these jobs.
    """
    cluster_run.create(trials=2, at_once=2, channel="exec")
    cluster_run.until_running(2)
    cluster_run.cluster.control("fault", drop="before", times=-1)
    cluster_run.cluster.control("break-watches")
    cluster_run.daemon.wait_for(cluster_run.id, lambda state: state["services"][0]["status"] == "away")
    cluster_run.daemon.call("POST", f"/experiments/{cluster_run.id}/stop")
    cluster_run.daemon.wait(cluster_run.id, "STOPPED", timeout_s=120)
    (warning,) = cluster_run.cluster.until(lambda: cluster_run.daemon.status(cluster_run.id)["warnings"])
    assert warning["code"] == "MAY_STILL_RUN"
    cluster_run.cluster.control("clear")
    cluster_run.cluster.until(lambda: not cluster_run.cluster.objects(TFJOBS, of(cluster_run.id)), 120)
    assert cluster_run.cluster.left(cluster_run.id) == []


@pytest.mark.parametrize("how", ["token file", "exec plug-in"])
def test_expired_token_is_read_again(cluster_run: ClusterRun, tmp_path: Path, how: str) -> None:
    token, kubeconfig = tmp_path / "token", tmp_path / "own-kubeconfig"
    told = yaml.safe_load(cluster_run.cluster.kubeconfig.read_text())
    user = {"tokenFile": str(token)} if how == "token file" else {"exec": _plug_in(tmp_path, token)}
    kubeconfig.write_text(yaml.safe_dump({**told, "users": [{**one, "user": user} for one in told["users"]]}))
    _issue(cluster_run, token)
    cluster_run.create(trials=3, at_once=2, kubeconfig=kubeconfig)
    cluster_run.until_running(2)
    cluster_run.cluster.control("expire-tokens", user="ann")
    _issue(cluster_run, token)
    cluster_run.cluster.control("break-watches")
    cluster_run.go()
    cluster_run.check(3)


def _issue(cluster_run: ClusterRun, token: Path) -> None:
    told = cluster_run.cluster.control("user", name="ann", groups=["system:masters"])
    token.write_text(told["token"])


def _plug_in(folder: Path, token: Path) -> dict[str, Any]:
    script = folder / "plug-in"
    script.write_text(
        f"""#!{sys.executable}
import json
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {{"token": open({str(token)!r}).read()}}}}))
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(script),
        "args": [],
        "interactiveMode": "Never",
    }


def test_pod_evicted_before_its_last_delivery_keeps_its_results(cluster_run: ClusterRun) -> None:
    """The daemon is away while the command ends and the pod vanishes: posted results count, or the trial reruns."""
    cluster_run.create(trials=1, at_once=1, metric_grace="1s")
    cluster_run.until_running(1)
    assert cluster_run.daemon.process is not None
    cluster_run.daemon.process.send_signal(signal.SIGSTOP)
    try:
        (pod,) = (one["metadata"] for one in cluster_run.cluster.objects(PODS, of(cluster_run.id)))
        cluster_run.go()
        time.sleep(0.5)  # the end of the command is not visible from outside
        cluster_run.cluster.control("evict", namespace=pod["namespace"], name=pod["name"])
    finally:
        cluster_run.daemon.process.send_signal(signal.SIGCONT)
    cluster_run.daemon.wait(cluster_run.id, "DONE", timeout_s=OUTAGE_S + 60)
    assert cluster_run.ends() == [(0, "SUCCEEDED", 0)]
