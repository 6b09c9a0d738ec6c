"""The suites for real services run: on a scripted cluster with real jobs, and on the fake API server as a process
of its own; all they know of it is a kubeconfig."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nni_manager.kubernetes.api.names import PODS, Resource
from tests.acceptance.digits_services import image
from tests.acceptance.kubernetes_cluster import CRDS, FakeCluster, fake_cluster
from tests.fakes import sandbox

pytestmark = [pytest.mark.contract, pytest.mark.thorough, pytest.mark.timeout(240)]

_ROOT = Path(__file__).parents[3]
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
_CONFIG = """
searchSpace: {x: {_type: choice, _value: [1, 2]}}
trialCommand: "true"
trialCodeDirectory: .
trialConcurrency: 1
tuner: {name: Random}
trainingService: {platform: scripted, launch: process, channel: push}
"""
_OF_CLUSTER = "wrong_credentials or an_outage_changes_nothing or pending_then_running or removed_job_is_lost"
_SOME = "pending_then_running or failed_job_has or leaving_lets_jobs_run or twice_is_one or a_cancelled"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Its image has what the digits example imports."""
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sandbox.IMAGE, json.dumps(image(folder / "packages")))
        with fake_cluster(folder, folder / "mounted") as found:
            yield found


def test_service_of_config_runs_suite(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(_CONFIG)
    done = _live("--kind", "scripted", "--live-config", str(tmp_path / "config.yml"), "--only", _SOME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^5 passed, \d+ deselected", done.stdout, re.MULTILINE), done.stdout
    assert "nothing is left there" in done.stdout


def test_cluster_of_kubeconfig_runs_suite(cluster: FakeCluster) -> None:
    """With an account that has the README's rights alone, and the digits example."""
    done = _live(*_of(cluster, "frameworkcontroller"), "--trials", "1", "--only", f"{_OF_CLUSTER} or digits")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^4 passed, 1 skipped, \d+ deselected", done.stdout, re.MULTILINE), done.stdout
    assert "as an account with the rights that the README asks for" in done.stdout
    assert "offers watch frameworks" in done.stdout and "vanish: what is deleted" in done.stdout
    assert "nothing is left there" in done.stdout and _left(cluster) == []


@pytest.mark.parametrize("kind", ["kubernetes", "kubeflow", "frameworkcontroller", "adl"])
def test_every_kind_of_cluster_meets_foreign_jobs(cluster: FakeCluster, kind: str) -> None:
    done = _live(*_of(cluster, kind), "--only", "foreign_job")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[12] passed, \d+ deselected", done.stdout, re.MULTILINE), done.stdout


def test_an_interrupted_run_leaves_nothing(cluster: FakeCluster) -> None:
    command = _command(*_of(cluster, "frameworkcontroller"), "--only", "test_a_cancelled_job_ends")
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as run:
        cluster.until(lambda: cluster.objects_everywhere(PODS))
        run.send_signal(signal.SIGINT)
        told, _ = run.communicate()
    assert run.returncode == 130 and "nothing is left there" in told, told
    assert _left(cluster) == []


def test_nothing_is_created_without_operator(cluster: FakeCluster) -> None:
    cluster.remove(CRDS, "adaptdljobs.adaptdl.petuum.com")
    done = _live(*_of(cluster, "adl"))
    assert done.returncode == 2 and "install its operator" in done.stderr, done.stdout + done.stderr
    assert "namespace" not in done.stdout.partition("left out")[2] and _left(cluster) == []


def test_tests_of_the_fake_run_on_a_real_cluster(cluster: FakeCluster) -> None:
    """In namespaces of their own; what only the fake offers is named."""
    cluster.remove(CRDS, "tfjobs.kubeflow.org")
    chosen = "orphaned_objects_stay or single_process or compact or forgotten"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    environment = {**os.environ, "NNI_TEST_KUBECONFIG": str(cluster.kubeconfig)}
    tests = ("tests/fakes/test_kubernetes_objects.py", "tests/fakes/test_kubernetes_jobs.py")
    done = _run([*command, *tests], environment)
    assert re.search(r"^1 passed, 2 skipped, \d+ deselected", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert "the cluster does not serve the kind" in done.stdout
    assert "needs the fake: a real cluster has no control route" in done.stdout and _left(cluster) == []


def _of(cluster: FakeCluster, kind: str) -> list[str]:
    return ["--kind", kind, "--kubeconfig", str(cluster.kubeconfig), "--patience", "100"]


def _command(*options: str) -> list[str]:
    return [sys.executable, "-m", "tests.platforms.live", *options]


def _live(*options: str) -> subprocess.CompletedProcess[str]:
    return _run(_command(*options), {**os.environ})


def _run(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True)


def _left(cluster: FakeCluster) -> list[str]:
    """Namespaces that the cluster had not at first."""
    told = cluster.objects_everywhere(NAMESPACES)
    return sorted({one["metadata"]["name"] for one in told} - {"default", "kube-system"})
