"""Jobs as the API gets them: fields of the section, labels, and fields that a server lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.job import JobState
from nni_manager.domain.service import WaitCode
from nni_manager.kubernetes.jobs.pod import PodSettings
from nni_manager.platform_kit.contract import Severity
from nni_manager.platform_kit.testing.observing import accepted, running, seen
from nni_manager.platforms.kubernetes.config import KubernetesConfig
from nni_manager.platforms.kubernetes.platform import CONTAINER, job
from tests.kubernetes.test_kubernetes_names_and_pods import job as spec
from tests.platforms.kubernetes.test_batch_job_contract import SETTINGS
from tests.platforms.kubernetes.test_batch_job_contract import TestBatchJob as BatchJob
from tests.platforms.kubernetes_world import KubernetesWorld
from tests.platforms.test_kubernetes_ends import WORLDS, every_kind, waiting

_PODS = PodSettings(platform="kubernetes", channel="push", runner_map="runner")
_OPTIONAL = {"podFailurePolicy", "podReplacementPolicy"}


def made(pods: PodSettings = _PODS, known: frozenset[str] = frozenset(_OPTIONAL), **settings: Any) -> dict[str, Any]:
    config = KubernetesConfig.model_validate({**SETTINGS, **settings})
    found: dict[str, Any] = job(spec(), config, pods, {}, "secret", known)["spec"]
    return found


def world_in(folder: Path) -> KubernetesWorld:
    return BatchJob().make_world(folder)


@pytest.mark.unit
def test_job_runs_one_pod_once() -> None:
    found = made()
    template = found.pop("template")
    assert found == {
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "ttlSecondsAfterFinished": 604800,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
    }
    assert template["spec"]["restartPolicy"] == "Never"
    assert _OPTIONAL.isdisjoint(made(known=frozenset()))


@pytest.mark.unit
def test_fields_of_the_section_are_in_the_pod() -> None:
    volumes = [
        {"mountPath": "/data", "claimName": "data", "readOnly": True, "subPath": "mnist"},
        {"mountPath": "/nfs", "nfs": {"server": "s", "path": "/e"}},
        {"mountPath": "/host", "hostPath": "/h"},
        {"mountPath": "/keys", "secretName": "keys"},
        {"mountPath": "/conf", "configMapName": "conf"},
    ]
    environment = [{"secretName": "hub", "key": "token", "variable": "HF_TOKEN"}, {"secretName": "all"}]
    found = made(
        nodeSelector={"pool": "a100"},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        volumes=volumes,
        secretEnvironment=environment,
        imagePullSecrets=[{"name": "registry"}],
        serviceAccountName="trainer",
        trialCpuNumber="500m",
    )["template"]["spec"]
    [container] = found["containers"]
    assert found["nodeSelector"] == {"pool": "a100"}
    assert found["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert found["imagePullSecrets"] == [{"name": "registry"}] and found["serviceAccountName"] == "trainer"
    assert "automountServiceAccountToken" not in found
    assert [next(iter(one.keys() - {"name"})) for one in found["volumes"][2:]] == [
        "persistentVolumeClaim",
        "nfs",
        "hostPath",
        "secret",
        "configMap",
    ]
    first = {"name": "volume-0", "mountPath": "/data", "readOnly": True, "subPath": "mnist"}
    assert first in container["volumeMounts"] and len(container["volumeMounts"]) == 7
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "64Mi"}
    secret = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": secret} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "all"}}]


@pytest.mark.unit
def test_pod_template_wins_over_fields() -> None:
    own = {"spec": {"nodeSelector": {"pool": "b"}, "restartPolicy": "OnFailure", "containers": [{"image": "other"}]}}
    pods = PodSettings(platform="kubernetes", channel="push", runner_map="runner", template=own)
    found = made(pods, nodeSelector={"zone": "c"})["template"]["spec"]
    assert found["nodeSelector"] == {"zone": "c", "pool": "b"}
    assert [(one["name"], one["image"]) for one in found["containers"]] == [(CONTAINER, "other")]
    assert found["restartPolicy"] == "Never", "the policy that a Job's podFailurePolicy requires"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"volumes": [{"mountPath": "/a"}]}, "volumes[0]"),
        ({"volumes": [{"mountPath": "/a", "claimName": "c", "hostPath": "/h"}]}, "volumes[0]"),
        ({"secretEnvironment": [{"secretName": "s", "variable": "V"}]}, "secretEnvironment[0].key"),
    ],
)
def test_incomplete_mapping_is_a_fault(settings: dict[str, Any], field: str) -> None:
    config = KubernetesConfig.model_validate({**SETTINGS, **settings})
    assert [name for name, _ in config.faults({})] == [field]


@pytest.mark.unit
def test_label_of_ours_is_refused() -> None:
    with pytest.raises(ValueError, match="nni-manager/"):
        KubernetesConfig.model_validate({**SETTINGS, "labels": {"nni-manager/job": "x"}})


@pytest.mark.contract
@every_kind
async def test_labels_and_queue_are_on_the_job(tmp_path: Path, kind: str) -> None:
    own = {"labels": {"team": "vision"}, "annotations": {"cost/center": "42"}}
    async with WORLDS[kind](tmp_path) as world:
        async with world.make(queueName="team-queue", priorityClass="low", **own) as platform:
            handle = await accepted(world, platform, "a")
    meta = world.job_object(handle)["metadata"]
    assert (
        meta["labels"].items()
        >= {
            "team": "vision",
            "kueue.x-k8s.io/queue-name": "team-queue",
            "kueue.x-k8s.io/priority-class": "low",
        }.items()
    )
    assert meta["labels"]["nni-manager/trial"] == "a"
    assert meta["annotations"]["cost/center"] == "42" and "nni-manager/job-name" in meta["annotations"]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("minor", "kept"),
    [(32, _OPTIONAL), (28, {"podFailurePolicy"}), (27, {"podFailurePolicy"}), (25, set()), (24, set())],
)
async def test_fields_that_the_server_lacks_do_no_harm(tmp_path: Path, minor: int, kept: set[str]) -> None:
    """Versions 24 and 27 do not know a field, which is therefore not sent; 25 and 28 drop it without a warning."""
    async with world_in(tmp_path) as world:
        world.server.cluster.settings.minor_version = minor
        world.server.cluster.verbs.minor_version = minor
        async with world.make() as platform:
            found = await platform.preflight()
            assert [one for one in found if one.severity is Severity.WARNING] == [], "no field is dropped"
            handle = await accepted(world, platform, "a")
            assert set(world.job_object(handle)["spec"]) & _OPTIONAL == kept


@pytest.mark.contract
async def test_hidden_description_leaves_optional_fields_out(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        world.control.fault(method="GET", path="/openapi", times=-1, status=403, reason="Forbidden", message="no")
        async with world.make() as platform:
            assert [one for one in await platform.preflight() if one.severity is not Severity.FINE] == []
            handle = await accepted(world, platform, "a")
            assert "podFailurePolicy" not in world.job_object(handle)["spec"]


@pytest.mark.contract
async def test_quota_of_pods_is_a_wait(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make() as platform:
        world.use_up_quota()
        handle = await accepted(world, platform, "a")
        wait = await waiting(world, platform, handle, lambda wait: wait.code is WaitCode.QUOTA)
        assert "exceeded quota: team" in wait.sentence


@pytest.mark.contract
async def test_preempted_pod_ends_the_job_by_its_policy(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.control.preempt("default", world.pods(handle)[0]["metadata"]["name"])
        report = await seen(world, platform, handle, JobState.PREEMPTED)
        assert report.native_reason == "PreemptionByScheduler"
        await world.ended_there(handle)
        failed = [one for one in world.job_object(handle)["status"]["conditions"] if one["type"] == "Failed"]
        assert [one["reason"] for one in failed] == ["PodFailurePolicy"]


@pytest.mark.contract
async def test_job_on_a_lost_node_is_preempted(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world, world.make() as platform:
        handle = await running(world, platform, "a")
        world.control.lose_node("node-0")
        report = await seen(world, platform, handle, JobState.PREEMPTED)
        assert report.native_reason == "DeletionByPodGC"


@pytest.mark.contract
async def test_unknown_field_of_pod_template_is_reported_once(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        found = await world.make(podTemplate={"spec": {"restartpolicy": "Never"}}).preflight()
        (warning,) = [one for one in found if one.severity is Severity.WARNING]
        assert 'unknown field "spec.template.spec.restartpolicy"' in warning.sentence
        assert (warning.subject, warning.fix) == ("Job", "correct podTemplate")


@pytest.mark.contract
async def test_missing_pull_secret_is_found_before_the_first_job(tmp_path: Path) -> None:
    async with world_in(tmp_path) as world:
        found = await world.make(imagePullSecrets=[{"name": "absent"}]).preflight()
    assert [one.subject for one in found if one.severity is Severity.WRONG] == ["imagePullSecrets"]


@pytest.mark.parametrize(("minor", "severity"), [(23, Severity.WARNING), (24, Severity.FINE)])
async def test_older_cluster_is_named(tmp_path: Path, minor: int, severity: Severity) -> None:
    async with world_in(tmp_path) as world:
        world.server.cluster.settings.minor_version = minor
        [found] = [one for one in await world.make().preflight() if one.subject == "cluster"]
    assert found.severity is severity
    assert ("older than 1.24, the oldest tested version" in found.sentence) == (minor < 24)
