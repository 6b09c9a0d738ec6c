"""The fake's controllers behave like recorded real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from kubernetes_asyncio import client, watch

from tests.fakes.kubernetes import definitions
from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, TestCluster, patience, until

pytestmark = pytest.mark.unit

TFJOBS = ("kubeflow.org", "v1", NAMESPACE, "tfjobs")
PYTORCHJOBS = ("kubeflow.org", "v1", NAMESPACE, "pytorchjobs")
FRAMEWORKS = ("frameworkcontroller.microsoft.com", "v1", NAMESPACE, "frameworks")
ADAPTDLJOBS = ("adaptdl.petuum.com", "v1", NAMESPACE, "adaptdljobs")
KINDS = {"tfjobs": TFJOBS, "pytorchjobs": PYTORCHJOBS, "frameworks": FRAMEWORKS, "adaptdljobs": ADAPTDLJOBS}
FINAL = {"Succeeded", "Failed", "Completed"}


def template(script: str, name: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": IMAGE, "command": ["sh", "-c", script]}]}}


def replicas(script: str, count: int = 1, name: str = "tensorflow", policy: str = "Never") -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": policy, "template": template(script, name)}


def tfjob(name: str, policy: dict[str, Any] | None = None, **roles: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"tfReplicaSpecs": roles, "runPolicy": policy or {}}}


def framework(name: str, script: str, count: int = 1, retry: int = 0, **pod: Any) -> dict[str, Any]:
    described = template(script, "c")
    described["spec"].update(restartPolicy="Never", **pod)
    no_retry = {"fancyRetryPolicy": False, "maxRetryCount": 0}
    role = {
        "name": "worker",
        "taskNumber": count,
        "task": {"retryPolicy": no_retry, "pod": described},
        "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": count},
    }
    spec = {"executionType": "Start", "taskRoles": [role], "retryPolicy": {**no_retry, "maxRetryCount": retry}}
    return {"metadata": {"name": name}, "spec": spec}


def adaptdl(name: str, script: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"minReplicas": 1, "maxReplicas": 4, **spec, "template": template(script, "main")},
    }


def word(job: dict[str, Any]) -> str:
    """The status of a job of any kind."""
    status = job.get("status") or {}
    true = [each["type"] for each in status.get("conditions") or [] if each["status"] == "True"]
    return str(status.get("state") or status.get("phase") or (true[-1] if true else ""))


async def followed(api: client.ApiClient, kind: tuple[str, ...], job: dict[str, Any]) -> list[dict[str, Any]]:
    """The job after each change, from its creation to its end."""
    custom, name = client.CustomObjectsApi(api), job["metadata"]["name"]
    version = (await custom.list_namespaced_custom_object(*kind))["metadata"]["resourceVersion"]
    await custom.create_namespaced_custom_object(*kind, job)
    seen = []
    async with watch.Watch() as watched:
        events = watched.stream(
            custom.list_namespaced_custom_object,
            *kind,
            resource_version=version,
            timeout_seconds=int(patience(30)),
            field_selector=f"metadata.name={name}",
        )
        async for event in events:
            seen.append(event["object"])
            if word(event["object"]) in FINAL:
                return seen
    raise AssertionError(f"{name} did not end: {[word(each) for each in seen]}")


async def pod_names(api: client.ApiClient) -> set[str]:
    return {each.metadata.name for each in (await client.CoreV1Api(api).list_namespaced_pod(NAMESPACE)).items}


async def log_of(api: client.ApiClient, name: str) -> str:
    answer = await client.CoreV1Api(api).read_namespaced_pod_log(name, NAMESPACE, _preload_content=False)
    return (await answer.content.read()).decode()


def steps(jobs: list[dict[str, Any]]) -> list[str]:
    """Without repetitions, and without the one step that a fast watch may miss."""
    return [each for each, _ in groupby(word(job) for job in jobs) if each != "AttemptDeleting"]


RECORDED: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
    ("tfjobs", "tf1", lambda: tfjob("tf1", PS=replicas("sleep 300"), Worker=replicas("sleep 0.3", 2))),
    ("tfjobs", "tffail", lambda: tfjob("tffail", Worker=replicas("exit 7"))),
    (
        "pytorchjobs",
        "pt1",
        lambda: {
            "metadata": {"name": "pt1"},
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": replicas("sleep 0.5", name="pytorch"),
                    "Worker": replicas("sleep 0.1", name="pytorch"),
                }
            },
        },
    ),
    ("frameworks", "fw1", lambda: framework("fw1", "sleep 0.2", 2)),
    ("frameworks", "fwfail", lambda: framework("fwfail", "exit 5")),
    ("adaptdljobs", "ad1", lambda: adaptdl("ad1", "sleep 0.2")),
]


@pytest.mark.parametrize(("plural", "name", "job"), RECORDED, ids=[name for _, name, _ in RECORDED])
async def test_job_takes_the_recorded_steps(
    api: client.ApiClient, plural: str, name: str, job: Callable[[], Any]
) -> None:
    if (reference := definitions.reference()) is None:
        pytest.skip("the recorded events are not available")
    lines = (reference / "k8s-events" / f"{plural}.jsonl").read_text().splitlines()
    recorded = [each for line in lines if (each := json.loads(line)["object"])["metadata"]["name"] == name]
    ours = await followed(api, KINDS[plural], job())
    assert steps(ours) == steps(recorded)
    ours_end, theirs_end = ours[-1]["status"], recorded[-1]["status"]
    assert set(ours_end) - {"lastReconcileTime"} == set(theirs_end)
    for mine, theirs in zip(ours_end.get("conditions", []), theirs_end.get("conditions", []), strict=True):
        assert [mine[x] for x in ("type", "status", "reason")] == [theirs[x] for x in ("type", "status", "reason")]
        assert mine["message"].replace(NAMESPACE, "default") == theirs["message"]
    if plural == "frameworks":
        for part in ("code", "phrase", "diagnostics", "type"):
            assert _ended(ours_end)[part] == _ended(theirs_end)[part]
        assert _ended(ours_end)["trigger"]["message"] == _ended(theirs_end)["trigger"]["message"]


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = status["attemptStatus"]["completionStatus"]
    return found


async def test_processes_of_a_tfjob_know_each_other(api: client.ApiClient) -> None:
    job = tfjob("a", {"cleanPodPolicy": "None"}, PS=replicas("sleep 300"), Worker=replicas('echo "$TF_CONFIG"', 2))
    await followed(api, TFJOBS, job)
    config = json.loads(await log_of(api, "a-worker-0"))
    assert config["task"] == {"type": "worker", "index": 0} and len(config["cluster"]["worker"]) == 2
    assert config["cluster"]["ps"] == [f"a-ps-0.{NAMESPACE}.svc:2222"]


async def test_single_process_gets_no_tf_config(api: client.ApiClient) -> None:
    await followed(api, TFJOBS, tfjob("a", Worker=replicas('echo "${TF_CONFIG:-none}"')))
    assert await log_of(api, "a-worker-0") == "none\n"


async def test_clean_pod_policy_is_followed(api: client.ApiClient) -> None:
    for policy, left in (("None", 2), ("Running", 1), ("All", 0)):
        name = policy.lower()
        job = tfjob(name, {"cleanPodPolicy": policy}, PS=replicas("exec sleep 300"), Worker=replicas("true"))
        await followed(api, TFJOBS, job)

        async def settled(name: str = name, left: int = left) -> bool:
            return len([each for each in await pod_names(api) if each.startswith(f"{name}-")]) == left

        await until(settled)


async def test_exit_codes_above_128_are_retried(api: client.ApiClient) -> None:
    seen = await followed(api, TFJOBS, tfjob("a", {"backoffLimit": 1}, Worker=replicas("exit 130", policy="ExitCode")))
    assert "Restarting" in [word(each) for each in seen] and word(seen[-1]) == "Failed"
    assert "backoff limit" in seen[-1]["status"]["conditions"][-1]["message"]
    permanent = await followed(api, TFJOBS, tfjob("b", Worker=replicas("exit 3", policy="ExitCode")))
    assert "Restarting" not in [word(each) for each in permanent] and word(permanent[-1]) == "Failed"


async def test_finished_job_is_removed_after_its_ttl(api: client.ApiClient) -> None:
    await followed(api, TFJOBS, tfjob("a", {"ttlSecondsAfterFinished": 0}, Worker=replicas("true")))

    async def gone() -> bool:
        listed = await client.CustomObjectsApi(api).list_namespaced_custom_object(*TFJOBS)
        return not listed["items"] and not await pod_names(api)

    await until(gone)


async def test_deleted_job_leaves_nothing(api: client.ApiClient) -> None:
    custom, core = client.CustomObjectsApi(api), client.CoreV1Api(api)
    await custom.create_namespaced_custom_object(*TFJOBS, tfjob("a", Worker=replicas("exec sleep 300", 2)))
    await custom.create_namespaced_custom_object(*FRAMEWORKS, framework("b", "exec sleep 300"))

    async def there() -> bool:
        return len(await pod_names(api)) == 3

    await until(there)
    await custom.delete_namespaced_custom_object(*TFJOBS, "a")
    await custom.delete_namespaced_custom_object(*FRAMEWORKS, "b")

    async def nothing() -> bool:
        maps = [each.metadata.name for each in (await core.list_namespaced_config_map(NAMESPACE)).items]
        services = (await core.list_namespaced_service(NAMESPACE)).items
        return not await pod_names(api) and maps == ["kube-root-ca.crt"] and not services

    await until(nothing)


async def test_stopped_framework_keeps_its_status_and_loses_its_pods(api: client.ApiClient) -> None:
    custom = client.CustomObjectsApi(api)
    await custom.create_namespaced_custom_object(*FRAMEWORKS, framework("a", "exec sleep 300", 2))

    async def runs() -> bool:
        return word(await custom.get_namespaced_custom_object(*FRAMEWORKS, "a")) == "AttemptRunning"

    await until(runs)
    stop = {"spec": {"executionType": "Stop"}}
    await custom.patch_namespaced_custom_object(*FRAMEWORKS, "a", stop, _content_type="application/merge-patch+json")

    async def completed() -> Any:
        found = await custom.get_namespaced_custom_object(*FRAMEWORKS, "a")
        return found if word(found) == "Completed" else None

    found = await until(completed)
    assert _ended(found["status"])["code"] == -210 and not await pod_names(api)


async def test_framework_retries_as_configured(api: client.ApiClient) -> None:
    seen = await followed(api, FRAMEWORKS, framework("a", "exit 5", retry=2))
    assert seen[-1]["status"]["retryPolicyStatus"]["totalRetriedCount"] == 2
    assert seen[-1]["status"]["attemptStatus"]["id"] == 2 and not await pod_names(api)


async def test_barrier_waits_for_all_tasks_and_needs_rights(api: client.ApiClient) -> None:
    mounts = [{"name": "b", "mountPath": "/mnt/frameworkbarrier"}]
    barrier = {"name": "frameworkbarrier", "image": "frameworkcontroller/frameworkbarrier", "volumeMounts": mounts}
    script = "FB_WORKER_PORT=4000; . /mnt/frameworkbarrier/injector.sh; [ -n $FB_WORKER_ADDRESSES ] && exit 42"
    job = framework(
        "a", script, 2, initContainers=[barrier], volumes=[{"name": "b", "emptyDir": {}}], serviceAccountName="barrier"
    )
    job["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["containers"][0]["volumeMounts"] = mounts
    await client.CoreV1Api(api).create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "barrier"}})
    rbac = client.RbacAuthorizationV1Api(api)
    rules = [{"apiGroups": ["frameworkcontroller.microsoft.com"], "resources": ["frameworks"], "verbs": ["get"]}]
    await rbac.create_namespaced_role(NAMESPACE, {"metadata": {"name": "barrier"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "barrier", "namespace": NAMESPACE}
    role = {"kind": "Role", "name": "barrier", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "barrier"}, "subjects": [subject], "roleRef": role}
    await rbac.create_namespaced_role_binding(NAMESPACE, binding)
    seen = await followed(api, FRAMEWORKS, job)
    assert _ended(seen[-1]["status"])["code"] == 42


async def test_adaptdl_job_moves_and_restarts(world: TestCluster, api: client.ApiClient) -> None:
    custom = client.CustomObjectsApi(api)
    script = '[ "$ADAPTDL_NUM_REPLICAS" = 2 ] || exec sleep 300; [ "$ADAPTDL_NUM_RESTARTS" = 1 ]'
    await custom.create_namespaced_custom_object(*ADAPTDLJOBS, adaptdl("a", script))

    def reached(phase: str) -> Callable[[], Any]:
        async def look() -> Any:
            found = await custom.get_namespaced_custom_object(*ADAPTDLJOBS, "a")
            return found if word(found) == phase else None

        return look

    await until(reached("Running"))
    world.control.reallocate(NAMESPACE, "a", 2)
    assert (await until(reached("Succeeded")))["status"]["group"] == 1


async def test_exit_143_of_a_preemptible_job_is_not_a_failure(world: TestCluster, api: client.ApiClient) -> None:
    """The pod is unchanged until the allocator changes the job's allocation."""
    custom = client.CustomObjectsApi(api)
    script = '[ "$ADAPTDL_NUM_RESTARTS" = 1 ] || exit 143'
    await custom.create_namespaced_custom_object(*ADAPTDLJOBS, adaptdl("a", script))

    async def failed_pod() -> bool:
        pods = (await client.CoreV1Api(api).list_namespaced_pod(NAMESPACE, label_selector="adaptdl/job=a")).items
        return any(pod.status.phase == "Failed" for pod in pods)

    async def end() -> str | None:
        found = word(await custom.get_namespaced_custom_object(*ADAPTDLJOBS, "a"))
        return found if found in ("Succeeded", "Failed") else None

    await until(failed_pod)
    assert await end() is None
    world.control.reallocate(NAMESPACE, "a", 2)
    assert await until(end) == "Succeeded"
    failed = (await followed(api, ADAPTDLJOBS, adaptdl("b", script, preemptible=False)))[-1]["status"]
    assert failed["phase"] == "Failed" and failed["reason"] == "PodFailure"
