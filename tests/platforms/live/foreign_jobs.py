"""Jobs that are none of ours, and run for long: what others may have in the same namespace."""

from __future__ import annotations

from typing import Any

#: As a real NNI labels its own.
LABELS = {"app": "nni-kubernetes-trial"}


def spec(plural: str, image: str) -> dict[str, Any]:
    """Of the object of a kind of job; `plural`: its name in the API."""
    if plural == "frameworks":
        role = {"name": "worker", "taskNumber": 1, "task": {"pod": _pod("worker", image, restartPolicy="Never")}}
        return {"executionType": "Start", "taskRoles": [role]}
    if plural == "adaptdljobs":
        return {"template": _pod("main", image)}
    field, role_name, container = {
        "tfjobs": ("tfReplicaSpecs", "Worker", "tensorflow"),
        "pytorchjobs": ("pytorchReplicaSpecs", "Master", "pytorch"),
    }[plural]
    replicas = {"replicas": 1, "restartPolicy": "Never", "template": _pod(container, image)}
    return {field: {role_name: replicas}}


def _pod(container: str, image: str, **fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": container, "image": image, "command": ["sleep", "1000"]}], **fields}}
