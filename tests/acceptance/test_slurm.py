"""Experiments on a real Slurm: each trial has one result, whatever dies, hangs or is refused."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import nni_manager
from tests.acceptance import slurm_table
from tests.acceptance.slurm_trials import SlurmExperiment, login_node, program_in_front
from tests.fakes.slurm import clusters
from tests.fakes.slurm.cluster import SlurmCluster
from tests.fakes.slurm.clusters import started
from tests.fakes.slurm.installation import VERSIONS
from tests.fakes.slurm.memory import CGROUP
from tests.fakes.slurm.settings import ClusterKind
from tests.live_daemon import Daemon
from tests.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.acceptance, pytest.mark.timeout(240)]
matrix = pytest.mark.slurm
slurm_clusters, running = clusters.slurm_clusters, clusters.slurm


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


def test_experiment_on_slurm_and_local_uses_both(one: SlurmExperiment) -> None:
    one.create(trials=8, at_once=4, trialConcurrency=2, others=[{"platform": "local", "trialConcurrency": 2}])
    attempts = one.finish(8)
    assert {attempt["service"] for attempt in attempts} == {"local", "slurm"}


@matrix
def test_optimize_runs_a_function_on_slurm(
    daemon: Daemon, running: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/objective.py").write_text("def square(parameters):\n    return parameters['x'] ** 2\n")
    monkeypatch.syspath_prepend(tmp_path / "code")
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, running.environment[name])
    square = importlib.import_module("objective").square
    section = {"platform": "slurm", "pollInterval": 5}
    space = {"x": {"_type": "uniform", "_value": [-9, 9]}}
    found = nni_manager.optimize(
        square, space, trials=3, concurrency=3, progress=False, platform=section, data_dir=daemon.data
    )
    assert [one.value for one in found.trials()] == [one.parameters["x"] ** 2 for one in found.trials()]


@matrix
@pytest.mark.timeout(500)
def test_twenty_kills_of_the_daemon_cost_no_trial(one: SlurmExperiment, tmp_path: Path) -> None:
    moments = _moments()
    with program_in_front(one.cluster, tmp_path / "front", "sbatch", _NOTED) as front, one.each_alone():
        one.create(trials=80, at_once=12, seconds=3)
        one.until_started()
        for number in range(20):
            if number % 2:  # while a job is submitted
                _until_submission(front / "submissions", 10)
                time.sleep(moments.uniform(0, 0.08))
            else:
                time.sleep(moments.uniform(0, 3))
            assert one.daemon.status(one.id)["status"] == "RUNNING"
            one.daemon.kill()
            one.daemon.start()
        assert len(one.finish(80, 300)) == 80
    one.ran_once(80)


#: Notes each submission.
_NOTED = """\
#!/bin/sh
echo >> {folder}/submissions
exec {real} "$@"
"""


def _until_submission(noted: Path, within_s: float) -> None:
    """Returns when a submission begins, or the time is over."""
    before = noted.stat().st_size
    with suppress(AssertionError):
        until(lambda: noted.stat().st_size > before, within_s)


def _moments() -> random.Random:
    """Random moments, whose seed is shown if the test fails. `NNI_SLURM_SEED` repeats them."""
    seed = os.environ.get("NNI_SLURM_SEED") or secrets.token_hex(4)
    print(f"NNI_SLURM_SEED={seed}")
    return random.Random(seed)


@matrix
@pytest.mark.timeout(400)
def test_trials_that_end_without_a_controller_keep_their_results(one: SlurmExperiment) -> None:
    with one.each_alone():
        one.create(trials=12, at_once=8, seconds=20)
        one.until_started(8)
        one.cluster.end("slurmctld")
        back_s = time.monotonic() + 65
        until(lambda: len(list(one.daemon.data.glob(f"{one.id}/**/exit.json"))) >= 8, 60)
        time.sleep(max(0.0, back_s - time.monotonic()))
        one.cluster.start_controller()
        assert len(one.finish(12, 250)) == 12
    one.ran_once(12)


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
@pytest.mark.timeout(600)
def test_hundred_submissions_killed_at_random_are_repeated_once(one: SlurmExperiment, tmp_path: Path) -> None:
    moments = _moments()
    longest_s = 1.3 * _submission_s(one.cluster)
    with program_in_front(one.cluster, tmp_path / "front", "sbatch", _UNRELIABLE) as front, one.each_alone():
        kills = [f"{moments.uniform(0, longest_s):.4f}" for _ in range(100)]
        (front / "kills").write_text("\n".join(kills))
        one.create(trials=100, at_once=40, seconds=1)
        assert len(one.finish(100, 500)) == 100
        killed = (front / "killed").read_text().split()
        print(f"{killed.count('accepted')} killed submissions were accepted before")
        assert len(killed) == 100
    one.ran_once(100)


def _submission_s(cluster: SlurmCluster) -> float:
    """Seconds that a submission takes now."""
    before_s = time.monotonic()
    for _ in range(3):
        cluster.call("sbatch", "--output=/dev/null", "--wrap=true")
    return (time.monotonic() - before_s) / 3


#: Kills a submission after the seconds in the next line of `kills`, with its answer; none after the last line.
_UNRELIABLE = """\
#!/bin/bash
exec 9>> {folder}/count
flock 9
echo >> {folder}/count
after=$(sed -n "$(wc -l < {folder}/count)p" {folder}/kills)
exec 9>&-
cat > {folder}/script-$$
[ -n "$after" ] || exec {real} "$@" < {folder}/script-$$
{real} "$@" < {folder}/script-$$ > {folder}/answer-$$ & job=$!
sleep $after
kill -9 $job 2>/dev/null
wait $job 2>/dev/null
if [ -s {folder}/answer-$$ ]; then echo accepted; else echo silent; fi >> {folder}/killed
kill -9 $$
"""


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
@pytest.mark.timeout(280)
def test_every_event_of_slurm_is_shown(daemon: Daemon, running: SlurmCluster, tmp_path: Path) -> None:
    runs = slurm_table.run_all(slurm_table.ON_IDLE_NODES, daemon, running, tmp_path / "idle", 80)
    running.call("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
    try:
        runs += slurm_table.run_all(slurm_table.OTHERS, daemon, running, tmp_path / "others", 150)
    finally:
        running.call("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)
        running.clear()
    _assert_complete(runs)


@matrix
def test_own_submit_limit_is_kept(one: SlurmExperiment) -> None:
    one.create(trials=3, at_once=3, seconds=3, maxSubmit=2)
    one.until_started(2)
    assert len(one.jobs("%i")) == 2
    assert "maxSubmit is 2" in str([trial["wait"] for trial in one.daemon.trials(one.id)])
    assert len(one.finish(3)) == 3


@matrix
@pytest.mark.parametrize("version", VERSIONS)
def test_results_need_neither_accounting_nor_memory_of_jobs(daemon: Daemon, tmp_path: Path, version: str) -> None:
    kind = ClusterKind(version=version, has_accounting=False, min_job_age_s=2)
    with started(tmp_path / "slurm", kind) as cluster:
        one = SlurmExperiment(daemon, cluster, tmp_path / "one")
        one.create(trials=4, at_once=2, seconds=1)
        one.until_started()
        daemon.kill()
        until(lambda: not cluster.call("squeue", "-h", "-t", "all").stdout.strip(), 60)
        daemon.start()
        assert len(one.finish(4)) == 4


@matrix
def test_trials_run_over_a_login_that_is_cut(one: SlurmExperiment, tmp_path: Path) -> None:
    with login_node(one.cluster, tmp_path / "login") as login:
        one.create(trials=6, seconds=6, login={**login.entry(), "hostKey": "accept-new"})
        one.until_started(3)
        asyncio.run(login.stop())
        until(lambda: len(list(login.home.glob(".nni-manager/**/exit.json"))) >= 3, 60)
        asyncio.run(login.start())
        assert len(one.finish(6, 200)) == 6


#: With the tests of both versions without options, every pair of: version, login, accounting, and limit of memory.
_PAIRS = {
    "own-local-without_accounting-cgroup": (ClusterKind(has_accounting=False, memory=CGROUP), False),
    "24.11-local-accounting-cgroup": (ClusterKind(version="24.11", memory=CGROUP), False),
    "24.11-login-accounting-cgroup": (ClusterKind(version="24.11", memory=CGROUP), True),
    "24.11-login-without_accounting-poll": (ClusterKind(version="24.11", has_accounting=False), True),
}


@matrix
@pytest.mark.parametrize(("kind", "has_login"), _PAIRS.values(), ids=_PAIRS)
def test_exceeded_memory_is_shown(daemon: Daemon, tmp_path: Path, kind: ClusterKind, has_login: bool) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(started(tmp_path / "slurm", kind))
        login = stack.enter_context(login_node(cluster, tmp_path / "login")) if has_login else None
        section = {"login": {**login.entry(), "hostKey": "accept-new"}} if login is not None else {}
        group = slurm_table.OVER_MEMORY[kind.memory]
        group = replace(group, section={**group.section, **section})
        runs = slurm_table.run_all([group], daemon, cluster, tmp_path / "one", 120)
    _assert_complete(runs)


def _assert_complete(runs: Sequence[slurm_table.GroupRun]) -> None:
    table = slurm_table.as_text([row for run in runs for row in run.rows()])
    print(f"\n{table}")
    assert not any(run.is_left for run in runs), table
