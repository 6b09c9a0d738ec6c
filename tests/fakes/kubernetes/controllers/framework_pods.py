"""The pods of a Framework's tasks."""

from __future__ import annotations

from tests.fakes.kubernetes.controllers.loop import reference
from tests.fakes.kubernetes.patches import copied
from tests.fakes.kubernetes.store import Object


def described(job: Object, status: Object, role: Object, task: Object, config_map: Object) -> Object:
    """One pod: the template with labels, annotations and environment of its framework, role and task."""
    spec = next(each for each in job["spec"]["taskRoles"] if each["name"] == role["name"])
    template = copied(spec["task"]["pod"])
    metadata = template.get("metadata") or {}
    values = _values(job, status, role, task, config_map)
    labels = {name: values[name] for name in ("FC_FRAMEWORK_NAME", "FC_TASKROLE_NAME", "FC_TASK_INDEX")}
    pod_spec = template["spec"]
    (pod_spec.get("securityContext") or {}).pop("seccompProfile", None)  # its API is older than this field
    for part in ("initContainers", "containers"):
        for container in pod_spec.get(part) or []:
            (container.get("securityContext") or {}).pop("seccompProfile", None)
            container["env"] = [*_environment(values), *(container.get("env") or [])]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": pod_spec,
        "metadata": {
            "name": values["FC_POD_NAME"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **values},
            "ownerReferences": [reference(config_map)],
        },
    }


def _values(job: Object, status: Object, role: Object, task: Object, config_map: Object) -> dict[str, str]:
    attempt = status["attemptStatus"]
    return {
        "FC_FRAMEWORK_NAMESPACE": job["metadata"]["namespace"],
        "FC_FRAMEWORK_NAME": job["metadata"]["name"],
        "FC_TASKROLE_NAME": role["name"],
        "FC_TASK_INDEX": str(task["index"]),
        "FC_CONFIGMAP_NAME": config_map["metadata"]["name"],
        "FC_POD_NAME": task["attemptStatus"]["podName"],
        "FC_FRAMEWORK_UID": job["metadata"]["uid"],
        "FC_FRAMEWORK_ATTEMPT_ID": str(attempt["id"]),
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": f"{attempt['id']}_{config_map['metadata']['uid']}",
        "FC_CONFIGMAP_UID": config_map["metadata"]["uid"],
        "FC_TASKROLE_UID": role["instanceUID"],
        "FC_TASK_UID": task["instanceUID"],
        "FC_TASK_ATTEMPT_ID": str(task["attemptStatus"]["id"]),
    }


def _environment(values: dict[str, str]) -> list[Object]:
    uid = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        {"name": "FC_POD_UID", "valueFrom": uid},
        {"name": "FC_TASK_ATTEMPT_INSTANCE_UID", "value": f"{values['FC_TASK_ATTEMPT_ID']}_$(FC_POD_UID)"},
    ]
