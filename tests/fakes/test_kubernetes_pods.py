"""Pods on the fake's nodes, whose commands really run."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client
from kubernetes_asyncio import config as configs
from kubernetes_asyncio.stream import WsApiClient

from tests.fakes.kubernetes.kubelet import roots
from tests.fakes.kubernetes.testing import IMAGE, NAMESPACE, TestCluster, cluster, until

pytestmark = pytest.mark.unit


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TestCluster]:
    (tmp_path / "export").mkdir()
    async with cluster(tmp_path, controllers=False, exports={"nas:/data": tmp_path / "export"}) as found:
        yield found


def pod(name: str, script: str, volumes: Any = (), mounts: Any = (), env: Any = (), **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "volumeMounts": list(mounts),
        "env": list(env),
    }
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": list(volumes), **spec}
    return {"metadata": {"name": name}, "spec": spec}


async def ended(core: client.CoreV1Api, name: str) -> client.V1Pod:
    async def look() -> client.V1Pod | None:
        found = await core.read_namespaced_pod(name, NAMESPACE)
        return found if found.status.phase in ("Succeeded", "Failed") else None

    return await until(look)


async def running(core: client.CoreV1Api, name: str) -> None:
    async def look() -> bool:
        found = await core.read_namespaced_pod(name, NAMESPACE)
        return any(each.ready for each in found.status.container_statuses or [])

    await until(look)


async def log_of(core: client.CoreV1Api, name: str, **options: Any) -> str:
    response = await core.read_namespaced_pod_log(name, NAMESPACE, _preload_content=False, **options)
    return (await response.content.read()).decode()


async def written(core: client.CoreV1Api, name: str, text: str) -> None:
    async def look() -> bool:
        return text in await log_of(core, name)

    await until(look)


def state(pod: client.V1Pod) -> Any:
    return pod.status.container_statuses[0].state


async def test_command_runs_and_its_end_is_reported(core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod(NAMESPACE, pod("a", "echo out; echo err >&2; exit 3"))
    found = await ended(core, "a")
    assert found.status.phase == "Failed" and state(found).terminated.exit_code == 3
    assert await log_of(core, "a") == "out\nerr\n"


async def test_every_kind_of_volume_is_mounted(world: TestCluster, core: client.CoreV1Api, tmp_path: Path) -> None:
    world.needs_fake("a folder of this machine is an export of NFS")
    await core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"key": "hidden"}})
    script = "cat /in/secret/key; echo; echo nfs >/mnt/nas/sub/file; echo pvc >/claim/file; echo $WHERE"
    binary = base64.b64encode(b"\xff\x00").decode()
    configured = {"metadata": {"name": "c"}, "data": {"run.sh": script}, "binaryData": {"raw": binary}}
    await core.create_namespaced_config_map(NAMESPACE, configured)
    await core.create_namespaced_persistent_volume_claim(
        NAMESPACE,
        {
            "metadata": {"name": "claim"},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    volumes = [
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "c", "defaultMode": 511}},
        {"name": "n", "nfs": {"server": "nas", "path": "/data"}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "e", "emptyDir": {}},
    ]
    paths = {"s": "/in/secret", "c": "/scripts", "n": "/mnt/nas", "p": "/claim", "e": "/scratch"}
    mounts = [{"name": name, "mountPath": path} for name, path in paths.items()]
    env = [{"name": "WHERE", "value": "/scratch/here"}]
    (tmp_path / "export" / "sub").mkdir()
    await core.create_namespaced_pod(
        NAMESPACE, pod("a", "/scripts/run.sh && wc -c </scripts/raw", volumes, mounts, env)
    )
    assert (await ended(core, "a")).status.phase == "Succeeded", await log_of(core, "a")
    told = (await log_of(core, "a")).splitlines()
    assert told[0] == "hidden" and told[1].endswith("/volumes/e/here") and told[2].strip() == "2"
    assert (tmp_path / "export" / "sub" / "file").read_text() == "nfs\n"


async def test_environment_has_its_sources(core: client.CoreV1Api) -> None:
    await core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"KEY": "hidden"}})
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)2 $$(A) $(NONE)"},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "KEY"}}},
        {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['who']"}}},
        {"name": "U", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    given = pod("a", 'echo "$A|$B|$S|$L|$U|$IP|$HOSTNAME"', env=env)
    given["metadata"]["labels"] = {"who": "me"}
    made = await core.create_namespaced_pod(NAMESPACE, given)
    found = await ended(core, "a")
    told = (await log_of(core, "a")).strip().split("|")
    assert told == ["1", "12 $(A) $(NONE)", "hidden", "me", made.metadata.uid, found.status.pod_ip, "a"]


async def test_init_containers_run_before(core: client.CoreV1Api) -> None:
    mounts = [{"name": "e", "mountPath": "/shared"}]
    init = [
        {"name": f"i{n}", "image": IMAGE, "command": ["sh", "-c", f"echo {n} >>/shared/f"], "volumeMounts": mounts}
        for n in (1, 2)
    ]
    given = pod("a", "cat /shared/f", [{"name": "e", "emptyDir": {}}], mounts, initContainers=init)
    await core.create_namespaced_pod(NAMESPACE, given)
    await ended(core, "a")
    assert await log_of(core, "a") == "1\n2\n"
    await core.create_namespaced_pod(
        NAMESPACE, pod("b", "true", initContainers=[{"name": "i", "image": IMAGE, "command": ["sh", "-c", "exit 9"]}])
    )
    found = await ended(core, "b")
    assert found.status.phase == "Failed" and found.status.init_container_statuses[0].state.terminated.exit_code == 9


async def test_failed_container_restarts(core: client.CoreV1Api) -> None:
    script = "[ -e again ] || { touch again; echo first; exit 2; }; echo second"
    await core.create_namespaced_pod(NAMESPACE, pod("a", script, restartPolicy="OnFailure"))
    found = await ended(core, "a")
    status = found.status.container_statuses[0]
    assert found.status.phase == "Succeeded" and status.restart_count == 1
    assert status.last_state.terminated.exit_code == 2
    assert await log_of(core, "a") == "second\n" and await log_of(core, "a", previous=True) == "first\n"


async def test_pod_gets_sigterm_then_sigkill(core: client.CoreV1Api) -> None:
    kind, deaf = "trap 'echo bye; exit 0' TERM", "trap '' TERM; setsid sleep 3021 & :"
    loop = "; echo up; while :; do sleep 0.05; done"
    await core.create_namespaced_pod(NAMESPACE, pod("kind", kind + loop))
    await core.create_namespaced_pod(NAMESPACE, pod("deaf", deaf + loop))
    await written(core, "kind", "up")
    await written(core, "deaf", "up")
    response = await core.read_namespaced_pod_log("kind", NAMESPACE, follow=True, _preload_content=False)
    await core.delete_namespaced_pod("kind", NAMESPACE)
    await core.delete_namespaced_pod("deaf", NAMESPACE, grace_period_seconds=1)
    assert (await core.read_namespaced_pod("deaf", NAMESPACE)).metadata.deletion_timestamp
    assert (await response.content.read()).decode() == "up\nbye\n"

    async def gone() -> bool:
        return not (await core.list_namespaced_pod(NAMESPACE)).items

    await until(gone)
    assert not sleeping("3021"), "a process of another session ends with its container, too"


def sleeping(seconds: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += [entry.name] if (entry / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode() else []
            except OSError:
                continue
    return found


async def test_logs_are_read_in_parts(core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod(NAMESPACE, pod("a", "for i in 1 2 3 4; do echo line$i; done"))
    await ended(core, "a")
    assert await log_of(core, "a", tail_lines=2) == "line3\nline4\n"
    assert await log_of(core, "a", limit_bytes=8) == "line1\nli"
    stamped = (await log_of(core, "a", timestamps=True)).splitlines()
    assert [line.split()[1] for line in stamped] == ["line1", "line2", "line3", "line4"]
    with pytest.raises(client.ApiException) as error:
        await core.read_namespaced_pod_log("a", NAMESPACE, container="other")
    assert error.value.status == 400


async def test_commands_run_in_a_container(world: TestCluster, core: client.CoreV1Api) -> None:
    volumes, mounts = [{"name": "e", "emptyDir": {}}], [{"name": "e", "mountPath": "/box"}]
    await core.create_namespaced_pod(NAMESPACE, pod("a", "echo there >/box/file; sleep 300", volumes, mounts))
    await running(core, "a")
    configuration = client.Configuration()
    await configs.load_kube_config(str(world.kubeconfig), client_configuration=configuration)
    async with WsApiClient(configuration) as api:
        exec_ = client.CoreV1Api(api).connect_get_namespaced_pod_exec
        options = {"stderr": True, "stdin": False, "stdout": True, "tty": False}
        once_written = "until [ -s /box/file ]; do sleep 0.02; done; cat /box/file; echo wrong >&2"
        told = await exec_("a", NAMESPACE, command=["sh", "-c", once_written], **options)
        assert sorted(told.split()) == ["there", "wrong"]
        options |= {"stdin": True, "_preload_content": False}
        opened = await exec_("a", NAMESPACE, command=["sh", "-c", "read x; echo got $x; exit 7"], **options)
        socket = await opened if isawaitable(opened) else opened  # by the client's release
        await socket.send_bytes(b"\0words\n")
        frames = [message.data async for message in socket]  # the server closes it
        await socket.close()
    assert b"\1got words\n" in frames
    (cause,) = json.loads(next(frame[1:] for frame in frames if frame[:1] == b"\3"))["details"]["causes"]
    assert cause == {"reason": "ExitCode", "message": "7"}


async def test_unpullable_image_is_reported_until_it_can_be_pulled(world: TestCluster, core: client.CoreV1Api) -> None:
    world.control.break_image(f"^{re.escape(IMAGE)}$", "manifest unknown")
    await core.create_namespaced_pod(NAMESPACE, pod("a", "true"))

    async def waits() -> bool:
        found = await core.read_namespaced_pod("a", NAMESPACE)
        return any(
            each.state.waiting and each.state.waiting.reason == "ImagePullBackOff"
            for each in found.status.container_statuses or []
        )

    await until(waits)
    told = {(each.reason, each.message) for each in (await core.list_namespaced_event(NAMESPACE)).items}
    assert ("Failed", f'Failed to pull image "{IMAGE}": manifest unknown') in told and (
        "Failed",
        "Error: ErrImagePull",
    ) in told
    world.control.mend_images()
    assert (await ended(core, "a")).status.phase == "Succeeded"


async def test_private_registry_wants_its_secret(world: TestCluster, core: client.CoreV1Api) -> None:
    world.control.private_registry("private.example", "ann", "pw")
    auth = base64.b64encode(b"ann:pw").decode()
    content = json.dumps({"auths": {"private.example": {"auth": auth}}})
    secret = {"metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson"}
    await core.create_namespaced_secret(NAMESPACE, {**secret, "stringData": {".dockerconfigjson": content}})
    given = pod("a", "true", imagePullSecrets=[{"name": "pull"}])
    given["spec"]["containers"][0]["image"] = "private.example/team/image:1"
    await core.create_namespaced_pod(NAMESPACE, given)
    assert (await ended(core, "a")).status.phase == "Succeeded"


async def test_node_capacity_limits_pods(core: client.CoreV1Api) -> None:
    for name, gpus in (("a", "6"), ("b", "6")):
        given = pod(name, "sleep 300" if name == "a" else "true")
        given["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        await core.create_namespaced_pod(NAMESPACE, given)

    async def told() -> Any:
        found = (await core.read_namespaced_pod("b", NAMESPACE)).status.conditions
        return found and found[0].reason == "Unschedulable" and found[0]

    assert (await until(told)).message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    await core.delete_namespaced_pod("a", NAMESPACE, grace_period_seconds=0)
    assert (await ended(core, "b")).status.phase == "Succeeded"


async def test_cluster_ends_pods(world: TestCluster, core: client.CoreV1Api) -> None:
    for name in ("evicted", "killed", "wiped", "preempted"):
        await core.create_namespaced_pod(NAMESPACE, pod(name, "sleep 300"))
        await running(core, name)
    world.control.evict(NAMESPACE, "evicted")
    world.control.oom_kill(NAMESPACE, "killed")
    world.control.lose_pod(NAMESPACE, "wiped")
    world.control.preempt(NAMESPACE, "preempted")
    evicted, killed = await ended(core, "evicted"), await ended(core, "killed")
    assert evicted.status.phase == "Failed" and evicted.status.reason == "Evicted"
    assert state(killed).terminated.exit_code == 137 and state(killed).terminated.reason == "OOMKilled"
    names = {each.metadata.name for each in (await core.list_namespaced_pod(NAMESPACE)).items}
    assert "wiped" not in names


async def test_refused_pod_has_no_containers(world: TestCluster, core: client.CoreV1Api) -> None:
    message = "Node didn't have enough resource: memory, requested: 4, used: 2, capacity: 3"
    world.control.reject("full", "OutOfmemory", message)
    await core.create_namespaced_pod(NAMESPACE, pod("full", "true"))
    refused = (await ended(core, "full")).status
    assert (refused.phase, refused.reason) == ("Failed", "OutOfmemory")
    assert refused.message == f"Pod was rejected: {message}" and refused.container_statuses is None
    await core.delete_namespaced_pod("full", NAMESPACE)


async def test_lost_node_takes_its_pods(world: TestCluster, core: client.CoreV1Api) -> None:
    await core.create_namespaced_pod(NAMESPACE, pod("a", "sleep 300"))
    await running(core, "a")
    world.control.lose_node("node-0")
    with pytest.raises(client.ApiException):
        await core.read_namespaced_pod("a", NAMESPACE)
    await core.create_namespaced_pod(NAMESPACE, pod("b", "true"))
    world.control.find_node("node-0")
    assert (await ended(core, "b")).status.phase == "Succeeded"


async def test_missing_objects_are_awaited(core: client.CoreV1Api) -> None:
    volumes, mounts = [{"name": "s", "secret": {"secretName": "late"}}], [{"name": "s", "mountPath": "/s"}]
    await core.create_namespaced_pod(NAMESPACE, pod("a", "cat /s/k", volumes, mounts))

    async def told() -> bool:
        events = (await core.list_namespaced_event(NAMESPACE)).items
        return any(each.reason == "FailedMount" and 'secret "late" not found' in each.message for each in events)

    await until(told)
    await core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "late"}, "stringData": {"k": "now"}})
    await ended(core, "a")
    assert await log_of(core, "a") == "now"


@pytest.mark.skipif(not roots.works(), reason="needs the right to `unshare` mounts")
async def test_pod_sees_no_files_or_packages_of_the_manager(
    world: TestCluster, core: client.CoreV1Api, tmp_path: Path
) -> None:
    for name in ("code", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    world.control.share(str(tmp_path / "shared"))
    repository = Path(__file__).parents[2]
    script = f"ls {tmp_path} {tmp_path}/shared {repository}; python3 -c 'import pytest' && echo packages"
    await core.create_namespaced_pod(NAMESPACE, pod("a", f"exec 2>/dev/null; {script}; touch /usr/a; exit 7"))
    assert state(await ended(core, "a")).terminated.exit_code == 7
    told = (await log_of(core, "a")).split()
    assert told == [f"{tmp_path}:", "cluster", "shared", f"{tmp_path}/shared:", "file"]


async def test_simulated_pod_runs_no_command(world: TestCluster, core: client.CoreV1Api) -> None:
    world.control.pretend("pretended=yes", seconds=0.05, exit_code=4, log="as if\n")
    given = pod("a", "echo really")
    given["metadata"]["labels"] = {"pretended": "yes"}
    await core.create_namespaced_pod(NAMESPACE, given)
    assert state(await ended(core, "a")).terminated.exit_code == 4
    assert await log_of(core, "a") == "as if\n"


async def test_forked_pod_runs_the_trial_runner(world: TestCluster, core: client.CoreV1Api, tmp_path: Path) -> None:
    world.control.fork("forked=yes")
    folder = tmp_path / "attempt"
    (folder / "code").mkdir(parents=True)
    (folder / "parameter.cfg").write_text("{}")
    given = pod("a", "echo really")
    given["metadata"]["labels"] = {"forked": "yes"}
    told = {
        "NNI_RUNNER_COMMAND": "echo $HOSTNAME; exit 5",
        "NNI_RUNNER_CHANNEL": "pull",
        "NNI_EXP_ID": "e",
        "NNI_TRIAL_JOB_ID": "t",
        "NNI_SYS_DIR": str(folder),
    }
    given["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in told.items()]
    await core.create_namespaced_pod(NAMESPACE, given)
    assert state(await ended(core, "a")).terminated.exit_code == 5
    assert await log_of(core, "a") == "a\n"


async def test_missing_command_fails_the_container(core: client.CoreV1Api) -> None:
    given = pod("a", "")
    given["spec"]["containers"][0]["command"] = ["no-such-command"]
    await core.create_namespaced_pod(NAMESPACE, given)
    ended_pod = await ended(core, "a")
    assert state(ended_pod).terminated.exit_code == 128 and state(ended_pod).terminated.reason == "StartError"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"containers": []}, "spec.containers"),
        ({"restartPolicy": "ExitCode"}, "spec.restartPolicy"),
        ({"containers": [{"name": "A_B", "image": IMAGE}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        (
            {"containers": [{"name": "a", "image": IMAGE, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "volumeMounts[0]",
        ),
    ],
)
async def test_invalid_pod_is_refused(core: client.CoreV1Api, change: Any, told: str) -> None:
    given = pod("a", "true")
    given["spec"].update(change)
    with pytest.raises(client.ApiException) as error:
        await core.create_namespaced_pod(NAMESPACE, given)
    assert error.value.status == 422 and told in error.value.body


async def test_quota_applies_to_all_pods_together(core: client.CoreV1Api) -> None:
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"requests.cpu": "3"}}}
    await core.create_namespaced_resource_quota(NAMESPACE, quota)
    given = pod("a", "sleep 300")
    given["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    await core.create_namespaced_pod(NAMESPACE, given)
    given["metadata"]["name"] = "b"
    with pytest.raises(client.ApiException) as error:
        await core.create_namespaced_pod(NAMESPACE, given)
    assert error.value.status == 403 and "exceeded quota: team, requested: requests.cpu=2" in error.value.body
