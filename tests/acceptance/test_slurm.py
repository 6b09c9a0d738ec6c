"""Experiments on a real Slurm: each trial has one result, whatever dies, hangs or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.slurm_trials import SlurmExperiment
from tests.fakes.slurm import cluster as slurm
from tests.fakes.slurm.cluster import SlurmCluster
from tests.live_daemon import Daemon
from tests.platforms.remote.ssh_machines import RealMachine
from tests.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.acceptance, pytest.mark.timeout(240)]
matrix = pytest.mark.slurm


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := slurm.missing():
        pytest.skip(reason)
    with slurm.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def one(daemon: Daemon, running: SlurmCluster, tmp_path: Path) -> Iterator[SlurmExperiment]:
    yield SlurmExperiment(daemon, running, tmp_path / "one")
    running.clear()


def test_trials_run_as_jobs_and_survive_a_killed_daemon(one: SlurmExperiment) -> None:
    one.create(trials=6, seconds=3)
    one.until_started()
    one.daemon.kill()
    one.daemon.start()
    assert len(one.finish(6)) == 6


@matrix
def test_daemon_killed_repeatedly_costs_no_trial(one: SlurmExperiment) -> None:
    one.create(trials=12, seconds=2)
    for number in (1, 4, 7, 10):
        one.until_started(number)
        one.daemon.kill()
        one.daemon.start()
    assert len(one.finish(12, 200)) == 12


@matrix
def test_trials_that_end_without_a_controller_keep_their_results(one: SlurmExperiment) -> None:
    one.create(trials=6, seconds=10)
    one.until_started(3)
    one.cluster.end("slurmctld")
    until(lambda: len(list(one.daemon.data.glob(f"{one.id}/**/exit.json"))) >= 3, 60)
    one.cluster.start_controller()
    assert len(one.finish(6, 200)) == 6


@matrix
def test_trials_need_no_accounting_daemon(one: SlurmExperiment) -> None:
    one.cluster.end("slurmdbd")
    try:
        one.create(trials=4)
        one.until_started(1)
        one.daemon.kill()
        one.daemon.start()
        assert len(one.finish(4, 150)) == 4
    finally:
        one.cluster.start_accounting()


@matrix
def test_trial_of_a_failed_node_runs_again(one: SlurmExperiment) -> None:
    one.create(trials=2, at_once=2, seconds=12)
    one.until_started(2)
    node = one.jobs("%N")[0][0]
    one.cluster.end(node, 9)
    try:
        until(lambda: one.cluster.call("sinfo", "-h", "-n", node, "-o", "%T").stdout.startswith("down"), 60)
    finally:
        one.cluster.start_node(node)
        one.cluster.until_ready()
    attempts = one.finish(2, 200)
    assert len(attempts) > 2


@matrix
def test_submissions_killed_at_random_are_repeated_once(one: SlurmExperiment, tmp_path: Path) -> None:
    front = tmp_path / "front"
    front.mkdir()
    real = one.cluster.call("sh", "-c", "command -v sbatch").stdout.strip()
    (front / "sbatch").write_text(_UNRELIABLE.format(real=real, folder=front))
    (front / "sbatch").chmod(0o755)
    one.cluster.front = str(front)
    try:
        one.create(trials=10, at_once=4, seconds=1)
        assert len(one.finish(10, 230)) == 10
    finally:
        one.cluster.front = ""
    assert (front / "killed").read_text().count("killed") >= 3


#: Every second submission is killed, after a time that differs.
_UNRELIABLE = """\
#!/bin/bash
n=$(cat {folder}/count 2>/dev/null || echo 0); echo $((n + 1)) > {folder}/count
cat > {folder}/script-$$
if [ $((n % 2)) = 0 ]; then
    {real} "$@" < {folder}/script-$$ > {folder}/out-$$ & job=$!
    sleep 0.0$((n * 7 % 10))
    kill -9 $job 2>/dev/null; wait $job 2>/dev/null
    echo killed >> {folder}/killed
    kill -9 $$
fi
exec {real} "$@" < {folder}/script-$$
"""


@matrix
def test_requeued_job_is_cancelled_and_its_trial_retried(one: SlurmExperiment) -> None:
    one.create(trials=1, at_once=1, seconds=8)
    one.until_started()
    ((id,),) = one.jobs("%i")
    one.cluster.call("scontrol", "update", f"JobId={id}", "Requeue=1")
    one.cluster.call("scontrol", "requeue", id)
    attempts = one.finish(1, 150)
    assert len(attempts) == 2 and attempts[0]["state"] == "PREEMPTED"


@matrix
def test_job_cancelled_by_a_user_ends_its_trial(one: SlurmExperiment) -> None:
    one.create(trials=1, at_once=1, seconds=60)
    one.until_started()
    one.cluster.call("scancel", *(id for (id,) in one.jobs("%i")))
    one.daemon.wait(one.id, "DONE", timeout_s=60)
    (trial,) = one.daemon.trials(one.id)
    assert trial["status"] == "SYS_CANCELED" and "cancelled on Slurm by root" in trial["message"]


@matrix
def test_stopped_experiment_ends_its_jobs(one: SlurmExperiment) -> None:
    one.create(trials=3, seconds=100)
    one.until_started(3)
    one.daemon.call("POST", f"/experiments/{one.id}/stop")
    one.daemon.wait(one.id, "STOPPED", timeout_s=60)
    until(lambda: not one.jobs("%i"))


@matrix
def test_stopped_experiment_ends_its_suspended_job(one: SlurmExperiment) -> None:
    one.create(trials=1, seconds=100)
    one.until_started()
    one.cluster.call("scontrol", "suspend", *(id for (id,) in one.jobs("%i")))
    one.daemon.call("POST", f"/experiments/{one.id}/stop")
    one.daemon.wait(one.id, "STOPPED", timeout_s=60)
    until(lambda: not one.jobs("%i"))


@matrix
def test_preempted_trial_is_retried(one: SlurmExperiment) -> None:
    one.create(trials=1, at_once=1, seconds=8, nodeNumber=2, options=["--exclusive"])
    one.until_started()
    one.cluster.call("sbatch", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")
    attempts = one.finish(1, 150)
    assert len(attempts) == 2 and attempts[0]["state"] == "PREEMPTED"


@matrix
def test_limits_of_time_and_memory_are_named(one: SlurmExperiment) -> None:
    one.create(trials=1, at_once=1, seconds=300, partition="short")
    one.daemon.wait(one.id, "DONE", "ERROR", timeout_s=200)
    (trial,) = one.daemon.trials(one.id)
    assert (trial["status"], trial["reason"]) == ("FAILED", "TIMEOUT") and "timeLimit" in trial["message"]


@matrix
def test_memory_limit_is_named(one: SlurmExperiment) -> None:
    greedy = "python3 -c 'x = bytearray(700 * 2**20); import time; time.sleep(60)'"
    one.create(trials=1, at_once=1, command=greedy, trialMemorySize="64MB")
    one.daemon.wait(one.id, "DONE", "ERROR", timeout_s=100)
    (trial,) = one.daemon.trials(one.id)
    assert (trial["status"], trial["reason"]) == ("FAILED", "OUT_OF_MEMORY")


@matrix
def test_submit_limit_makes_trials_wait(one: SlurmExperiment) -> None:
    one.create(trials=5, at_once=4, seconds=1, qos="tight")
    assert len(one.finish(5, 200)) == 5


@matrix
def test_own_submit_limit_is_kept(one: SlurmExperiment) -> None:
    one.create(trials=3, at_once=3, seconds=3, maxSubmit=2)
    one.until_started(2)
    assert len(one.jobs("%i")) == 2
    assert "maxSubmit is 2" in str([trial["wait"] for trial in one.daemon.trials(one.id)])
    assert len(one.finish(3)) == 3


@matrix
def test_job_on_a_closed_partition_holds_the_service(one: SlurmExperiment) -> None:
    one.create(trials=1, at_once=1, partition="closed")
    state = one.daemon.wait_for(one.id, lambda state: state["hold"], timeout_s=120)
    assert state["hold"]["code"] == "NEVER_STARTS" and "PartitionDown" in state["hold"]["sentence"]


@matrix
def test_held_and_suspended_jobs_say_so(one: SlurmExperiment) -> None:
    one.create(trials=1, at_once=1, seconds=8, options=["--hold"])
    until(lambda: one.daemon.trials(one.id)[:1] and _wait_of(one)["code"] == "HELD", 60)
    assert "JobHeldUser" in _wait_of(one)["sentence"]
    ((id,),) = one.jobs("%i")
    one.cluster.call("scontrol", "release", id)
    one.until_started()
    one.cluster.call("scontrol", "suspend", id)
    until(lambda: "suspended on Slurm" in one.daemon.attempts(one.id)[0]["place"], 60)
    one.cluster.call("scontrol", "resume", id)
    assert len(one.finish(1)) == 1


@matrix
def test_job_without_nodes_says_so(one: SlurmExperiment) -> None:
    one.cluster.call("scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=test")
    try:
        one.create(trials=1, at_once=1, seconds=1)
        until(lambda: one.daemon.trials(one.id)[:1] and _wait_of(one)["code"] == "UNSCHEDULABLE", 60)
    finally:
        one.cluster.call("scontrol", "update", "NodeName=n1,n2", "State=RESUME")
    assert len(one.finish(1)) == 1


def _wait_of(one: SlurmExperiment) -> dict[str, str]:
    found: dict[str, str] = one.daemon.trials(one.id)[0]["wait"] or {"code": "", "sentence": ""}
    return found


@matrix
def test_results_need_neither_accounting_nor_memory_of_jobs(daemon: Daemon, tmp_path: Path) -> None:
    if reason := slurm.missing():
        pytest.skip(reason)
    (tmp_path / "slurm").mkdir()
    with slurm.running(tmp_path / "slurm", has_accounting=False, min_job_age_s=2) as cluster:
        one = SlurmExperiment(daemon, cluster, tmp_path / "one")
        one.create(trials=4, at_once=2, seconds=1)
        one.until_started()
        daemon.kill()
        until(lambda: not cluster.call("squeue", "-h", "-t", "all").stdout.strip(), 60)
        daemon.start()
        assert len(one.finish(4)) == 4


@matrix
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"trialMemorySize": "99999MB"}, "would not start a job with these options"),
        ({"nodeNumber": 9}, "would not start a job with these options"),
        ({"partition": "private"}, "the account lab may not use the partition private"),
        ({"partition": "short", "timeLimit": "1:00:00"}, "timeLimit is above the limit of the partition short"),
        ({"qos": "nope"}, "Invalid qos"),
    ],
)
def test_impossible_request_is_refused_at_creation(one: SlurmExperiment, fields: dict[str, object], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        one.create(trials=1, **fields)


@matrix
def test_trials_run_over_a_login_that_is_cut(one: SlurmExperiment, tmp_path: Path) -> None:
    login = RealMachine(tmp_path / "login")
    login.environment = {"SLURM_CONF": str(one.cluster.conf)}
    asyncio.run(login.start())
    try:
        entry = {**login.entry(), "hostKey": "accept-new"}
        one.create(trials=6, seconds=6, login=entry)
        one.until_started(3)
        asyncio.run(login.stop())
        until(lambda: len(list(login.home.glob(".nni-manager/**/exit.json"))) >= 3, 60)
        asyncio.run(login.start())
        assert len(one.finish(6, 200)) == 6
    finally:
        asyncio.run(login.stop())
