"""A daemon with jobs on a fake OpenPAI cluster: both channels, lost answers, a killed daemon, rotated tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.openpai_account import Cluster, assert_every_trial_has_its_own_result
from tests.fakes import sandbox
from tests.fakes.process import running
from tests.live_daemon import Daemon
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "openpai"
    folder.mkdir()
    with running("openpai", folder / "cluster") as fake:
        yield Cluster(fake, folder)


def test_lost_answers_and_restarts_cost_no_trial(listening: Daemon, cluster: Cluster) -> None:
    cluster.fake.control("behaviour", lose_answers=4)
    id = cluster.create(listening, 6)
    until(lambda: cluster.jobs, within_s=30)
    listening.kill()  # it may or may not know the job
    cluster.fake.stop(kill=True)
    cluster.fake.start()
    listening.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    listening.wait(id, "DONE", timeout_s=120)
    trials = assert_every_trial_has_its_own_result(listening, id, 6)
    assert len(cluster.jobs) == 6
    (folder,) = cluster.nfs.glob(f"{id}-*/*")
    assert [Path(folder, one["id"], "stdout").read_text() for one in trials] == ["clean\n"] * 6


def test_results_come_by_storage_if_runners_cannot_connect(
    listening: Daemon, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.IMAGE, sandbox.SOON_READ)
    cluster.fake.stop()
    cluster.fake.start()
    id = cluster.create(listening, 3, nniManagerIp="127.0.0.2")
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 3)
    assert list(cluster.nfs.glob(f"{id}-*/*"))


def test_token_rotation_loses_no_running_trial(listening: Daemon, cluster: Cluster) -> None:
    cluster.fake.control("behaviour", hold=True)
    id = cluster.create(listening, 3)
    until(lambda: len(cluster.jobs) == 3, within_s=30)
    link = f"{cluster.fake.address}/job-detail.html?username=alice&jobName=nni_exp_{id}_trial_"
    until(lambda: all(link in one["link"] for one in listening.call("GET", f"/experiments/{id}/trials")["trials"]))
    cluster.set_tokens("users", ["another"])
    listening.wait_for(id, lambda state: state["hold"] and "refuses" in state["hold"]["sentence"])
    listening.call("PUT", f"/experiments/{id}/credentials", json={"secrets": {"${PAI_TOKEN}": "another"}})
    cluster.fake.control("behaviour", hold=False)
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 3)
    assert len(cluster.jobs) == 3


def test_job_restarted_by_the_cluster_is_the_same_trial(listening: Daemon, cluster: Cluster) -> None:
    """A lost node does not end the job, and the manager does not submit another."""
    command = 'test -e "$NNI_OUTPUT_DIR/go" || { touch "$NNI_OUTPUT_DIR/began"; sleep 1000; }; python3 trial.py'
    id = cluster.create(listening, 1, trialCommand=command)
    until(lambda: list(cluster.nfs.glob(f"{id}-*/*/*/began")), within_s=30)
    (began,) = cluster.nfs.glob(f"{id}-*/*/*/began")
    began.with_name("go").touch()
    (job,) = cluster.jobs
    cluster.fake.control("end", user="alice", name=job["name"], code=-1001)
    listening.wait(id, "DONE")
    assert_every_trial_has_its_own_result(listening, id, 1)
    assert [job["retries"] for job in cluster.jobs] == [1]


def test_stop_reaches_the_runner_over_the_network(listening: Daemon, cluster: Cluster) -> None:
    """OpenPAI forwards no signals: the runner gets the stop over the network, and sends the command SIGTERM."""
    command = "trap 'touch $NNI_OUTPUT_DIR/heard; exit 0' TERM; touch $NNI_OUTPUT_DIR/began; sleep 1000 & wait"
    id = cluster.create(listening, 1, trialCommand=command)
    until(lambda: list(cluster.nfs.glob(f"{id}-*/*/*/began")), within_s=30)
    (trial,) = listening.trials(id)
    listening.call("POST", f"/experiments/{id}/trials/{trial['id']}/kill")
    until(lambda: list(cluster.nfs.glob(f"{id}-*/*/*/heard")), within_s=30)


def test_unusable_settings_are_refused_before_creation(listening: Daemon, cluster: Cluster) -> None:
    section = {**cluster.config(1)["trainingService"], "virtualCluster": "mars"}
    with pytest.raises(AssertionError, match=r"virtualCluster.*mars.*default"):
        cluster.create(listening, 1, trainingService=section)
    assert cluster.jobs == []
