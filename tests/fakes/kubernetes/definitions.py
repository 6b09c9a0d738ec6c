"""CustomResourceDefinitions of the training job kinds: the published ones if available, else our short ones."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

FOLDERS = ("adaptdl", "frameworkcontroller-v1.0.1")


def reference() -> Path | None:
    """Third-party reference files, in `shared/reference` next to or above a checkout, if available."""
    above = Path(__file__).parents[3:]
    return next((found for folder in above if (found := folder / "shared" / "reference").is_dir()), None)


@functools.cache
def published(operator_version: str = "v1.8.1") -> list[dict[str, Any]] | None:
    """Published definitions; None: missing, so the short ones are used."""
    found = reference()
    folders = [found / "crds" / name for name in (*FOLDERS, f"training-operator-{operator_version}")] if found else []
    if not folders or not all(each.is_dir() for each in folders):
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [yaml.load(path.read_bytes(), loader) for each in folders for path in sorted(each.glob("*.yaml"))]


def of_training_jobs(operator_version: str = "v1.8.1") -> list[dict[str, Any]]:
    return published(operator_version) or short()


_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STRING, _INTEGER, _BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}


def short() -> list[dict[str, Any]]:
    """Short definitions with the fields that our controllers use; pod templates are not checked."""
    return [
        _definition("kubeflow.org", "TFJob", "tfjobs", _training_job("tfReplicaSpecs"), status=True),
        _definition("kubeflow.org", "PyTorchJob", "pytorchjobs", _training_job("pytorchReplicaSpecs"), status=True),
        _definition("frameworkcontroller.microsoft.com", "Framework", "frameworks", _framework(), status=False),
        _definition("adaptdl.petuum.com", "AdaptDLJob", "adaptdljobs", _adaptdl(), status=True),
    ]


def _definition(group: str, kind: str, plural: str, schema: dict[str, Any], status: bool) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


def _training_job(replicas: str) -> dict[str, Any]:
    replica = {"replicas": _INTEGER, "restartPolicy": _STRING, "template": _ANY}
    policy: dict[str, Any] = {
        "activeDeadlineSeconds": _INTEGER,
        "backoffLimit": _INTEGER,
        "cleanPodPolicy": _STRING,
        "ttlSecondsAfterFinished": _INTEGER,
        "suspend": {"type": "boolean", "default": False},
        "schedulingPolicy": _ANY,
        "managedBy": _STRING,
    }
    spec: dict[str, Any] = {
        "type": "object",
        "required": [replicas],
        "properties": {
            "runPolicy": {"type": "object", "properties": policy},
            "successPolicy": _STRING,
            "enableDynamicWorker": _BOOLEAN,
            "elasticPolicy": _ANY,
            "nprocPerNode": _STRING,
            replicas: {"type": "object", "additionalProperties": {"type": "object", "properties": replica}},
        },
    }
    return {"type": "object", "properties": {"spec": spec, "status": _ANY}}


def _framework() -> dict[str, Any]:
    name = {"type": "string", "pattern": "^[a-z0-9]{1,63}$"}
    retry = {
        "type": "object",
        "properties": {"fancyRetryPolicy": _BOOLEAN, "maxRetryCount": {"type": "integer", "minimum": -2}},
    }
    count = {"type": "integer", "minimum": -1}
    completion = {"type": "object", "properties": {"minFailedTaskCount": count, "minSucceededTaskCount": count}}
    task = {"pod": _ANY, "podGracefulDeletionTimeoutSec": {"type": "integer", "nullable": True}, "retryPolicy": retry}
    role = {
        "name": name,
        "taskNumber": {"type": "integer", "minimum": 0, "maximum": 10000},
        "frameworkAttemptCompletionPolicy": completion,
        "task": {"type": "object", "properties": task},
    }
    spec = {
        "description": {"type": "string", "nullable": True},
        "executionType": {"type": "string", "enum": ["Create", "Start", "Stop"]},
        "retryPolicy": retry,
        "taskRoles": {"type": "array", "items": {"type": "object", "properties": role}},
    }
    metadata = {"type": "object", "properties": {"name": name}}
    members = {
        "metadata": metadata,
        "spec": {"type": "object", "properties": spec},
        "status": {**_ANY, "nullable": True},
    }
    return {"type": "object", "properties": members}


def _adaptdl() -> dict[str, Any]:
    spec = {
        "maxReplicas": {"type": "integer", "minimum": 1},
        "minReplicas": {"type": "integer", "minimum": 0},
        "preemptible": _BOOLEAN,
        "template": _ANY,
    }
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 63}}}
    members = {
        "metadata": metadata,
        "spec": {"type": "object", "required": ["template"], "properties": spec},
        "status": _ANY,
    }
    return {"type": "object", "required": ["spec"], "properties": members}
