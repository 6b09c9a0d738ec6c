"""What befalls an experiment on a cluster, through the daemon: no trial is lost, and none runs twice."""

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

from tests.acceptance.kubernetes_cluster import PODS, TFJOBS, FakeCluster, of
from tests.live_daemon import LISTENING, Daemon, picked, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

#: Seconds that the API server is gone; as a person would wait: two minutes.
OUTAGE_S = float(os.environ.get("NNI_TEST_OUTAGE_S", "2"))
WATCHES = 100
_ROLE = {"replicas": 1, "cpuNumber": 1, "memorySize": "64mb", "dockerImage": "example/trial:1"}


class Stage:
    """An experiment whose trials end when they are told to, each with its number as its result."""

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
        command = (
            f"while [ ! -e {self._go} ]; do sleep 0.05; done; "
            """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
        )
        service = {
            "platform": "kubeflow",
            "operator": "tf-operator",
            "apiVersion": "v1",
            "channel": channel,
            "nniManagerIp": "127.0.0.1",
            "kubeconfig": str(kubeconfig or self.cluster.kubeconfig),
            "worker": {**_ROLE, "command": command},
        }
        code = self._folder / "code"
        code.mkdir()
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": command,
            "trialCodeDirectory": ".",
            "trialConcurrency": at_once,
            "maxTrialNumber": trials,
            "tuner": {"name": "Random"},
            "metricGrace": metric_grace,
            "trainingService": service,
        }
        self.id = self.daemon.create(config, code)

    def go(self) -> None:
        """Trials may end."""
        self._go.touch()

    def restart(self) -> None:
        """After it was killed."""
        self.daemon.start(*LISTENING)

    def until_running(self, trials: int) -> None:
        self.daemon.wait_for(self.id, lambda state: state["counts"].get("RUNNING", 0) == trials)

    def met(self) -> int:
        """Requests to the cluster that went wrong so far."""
        return int(self.cluster.control("met")["requests"])

    def ends(self) -> list[tuple[Any, ...]]:
        """(sequence id, status, result) of each trial."""
        return picked(self.daemon.trials(self.id), "sequenceId", "status", "finalValue")

    def check(self, trials: int) -> None:
        """Every trial ended well, at the first attempt, as the only job that ever was."""
        self.daemon.wait(self.id, "DONE", timeout_s=OUTAGE_S + 60)
        assert self.ends() == [(number, "SUCCEEDED", number) for number in range(trials)]
        assert picked(self.daemon.attempts(self.id), "number") == [(1,)] * trials
        ever = self.cluster.control("timeline", resource="tfjobs.kubeflow.org")
        assert sum(self.id in name for name in ever) == trials


@pytest.fixture
def mortal(cluster: FakeCluster, tmp_path: Path) -> Iterator[Stage]:
    """With a daemon of its own, to be killed."""
    with running_daemon(tmp_path, *LISTENING) as daemon:
        yield Stage(daemon, cluster, tmp_path)
    cluster.control("clear")


@pytest.fixture
def stage(shared: Daemon, cluster: FakeCluster, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(shared, cluster, tmp_path)
    yield stage
    cluster.control("clear")
    if stage.id:
        shared.call("POST", f"/experiments/{stage.id}/stop")


def test_daemon_killed_around_each_call_submits_nothing_twice(mortal: Stage) -> None:
    """Between intent and create, in a create that is carried out later, between create and record, and in mid-watch."""
    around = [("POST", "/secrets", 60.0), ("POST", "/tfjobs", 1.0), ("PATCH", "/secrets", 60.0)]
    for number, (method, path, delay) in enumerate(around):
        met = mortal.met()
        mortal.cluster.control("fault", method=method, path=path, delay=delay, times=-1)
        if number == 0:
            mortal.create(trials=3, at_once=3)
        else:
            mortal.restart()
        mortal.cluster.until(lambda before=met: mortal.met() >= before + 3)
        mortal.daemon.kill()
        mortal.cluster.control("clear")
    mortal.restart()
    mortal.until_running(3)
    mortal.daemon.kill()
    mortal.cluster.control("break-watches")
    mortal.go()
    mortal.restart()
    mortal.check(3)


def test_api_server_outages_and_broken_watches_cost_no_trial(stage: Stage) -> None:
    stage.create(trials=3, at_once=2)
    stage.until_running(2)
    for _ in range(WATCHES):
        stage.cluster.control("break-watches")
    stage.cluster.control("outage", seconds=OUTAGE_S)
    stage.daemon.wait_for(stage.id, lambda state: state["services"][0]["status"] == "away")
    stage.go()
    stage.check(3)


def test_jobs_of_an_experiment_that_was_stopped_during_an_outage_are_ended_after_it(stage: Stage) -> None:
    """By the daemon itself: no other experiment starts there, and nobody asks for it. Nothing but the API server could
    tell the jobs to end."""
    stage.create(trials=2, at_once=2, channel="exec")
    stage.until_running(2)
    stage.cluster.control("fault", drop="before", times=-1)
    stage.cluster.control("break-watches")
    stage.daemon.wait_for(stage.id, lambda state: state["services"][0]["status"] == "away")
    stage.daemon.call("POST", f"/experiments/{stage.id}/stop")
    stage.daemon.wait(stage.id, "STOPPED", timeout_s=120)
    (warning,) = stage.cluster.until(lambda: stage.daemon.status(stage.id)["warnings"])
    assert warning["code"] == "MAY_STILL_RUN"
    stage.cluster.control("clear")
    stage.cluster.until(lambda: not stage.cluster.objects(TFJOBS, of(stage.id)), 120)
    assert stage.cluster.left(stage.id) == []


@pytest.mark.parametrize("how", ["token file", "exec plug-in"])
def test_expired_token_is_read_again(stage: Stage, tmp_path: Path, how: str) -> None:
    token, kubeconfig = tmp_path / "token", tmp_path / "own-kubeconfig"
    told = yaml.safe_load(stage.cluster.kubeconfig.read_text())
    user = {"tokenFile": str(token)} if how == "token file" else {"exec": _plug_in(tmp_path, token)}
    kubeconfig.write_text(yaml.safe_dump({**told, "users": [{**one, "user": user} for one in told["users"]]}))
    _issue(stage, token)
    stage.create(trials=3, at_once=2, kubeconfig=kubeconfig)
    stage.until_running(2)
    stage.cluster.control("expire-tokens", user="ann")
    _issue(stage, token)
    stage.cluster.control("break-watches")
    stage.go()
    stage.check(3)


def _issue(stage: Stage, token: Path) -> None:
    told = stage.cluster.control("user", name="ann", groups=["system:masters"])
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


def test_pod_evicted_before_its_last_delivery_keeps_its_results(stage: Stage) -> None:
    """The daemon hears nothing while the command ends and the pod goes: what was posted counts, or it is run again."""
    stage.create(trials=1, at_once=1, metric_grace="1s")
    stage.until_running(1)
    assert stage.daemon.process is not None
    stage.daemon.process.send_signal(signal.SIGSTOP)
    try:
        (pod,) = (one["metadata"] for one in stage.cluster.objects(PODS, of(stage.id)))
        stage.go()
        time.sleep(0.5)  # no one sees from outside that the command has ended
        stage.cluster.control("evict", namespace=pod["namespace"], name=pod["name"])
    finally:
        stage.daemon.process.send_signal(signal.SIGCONT)
    stage.daemon.wait(stage.id, "DONE", timeout_s=OUTAGE_S + 60)
    assert stage.ends() == [(0, "SUCCEEDED", 0)]
