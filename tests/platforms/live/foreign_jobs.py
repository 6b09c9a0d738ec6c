"""Long jobs of other users in the same namespace."""

from __future__ import annotations

from typing import Any

#: The labels of NNI's own jobs.
LABELS = {"app": "nni-kubernetes-trial"}


def spec(plural: str, image: str) -> dict[str, Any]:
    """The spec of a job. `plural`: the name of its kind in the API."""
    if plural == "frameworks":
        role = {"name": "worker", "taskNumber": 1, "task": {"pod": _pod("worker", image, restartPolicy="Never")}}
        return {"executionType": "Start", "taskRoles": [role]}
    if plural == "jobs":
        return {"template": _pod("main", image, restartPolicy="Never")}
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
