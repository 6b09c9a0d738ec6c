"""Experiments on a real Slurm: each trial has one result, whatever dies, hangs or is refused."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import nni_manager
from tests.acceptance import slurm_table
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
    table = slurm_table.as_text([row for run in runs for row in run.rows()])
    print(f"\n{table}")
    assert not any(run.is_left for run in runs), table


@matrix
def test_own_submit_limit_is_kept(one: SlurmExperiment) -> None:
    one.create(trials=3, at_once=3, seconds=3, maxSubmit=2)
    one.until_started(2)
    assert len(one.jobs("%i")) == 2
    assert "maxSubmit is 2" in str([trial["wait"] for trial in one.daemon.trials(one.id)])
    assert len(one.finish(3)) == 3


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
