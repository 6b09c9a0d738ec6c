"""The kind Job of `batch/v1` as an API server handles it: defaults, validation, selector, OpenAPI description."""

from __future__ import annotations

from typing import Any

from tests.fakes.kubernetes import built_in_schemas
from tests.fakes.kubernetes.schemas import Cause
from tests.fakes.kubernetes.store import Object

DESCRIPTION_PATH = "/openapi/v3/apis/batch/v1"
#: Fields of the spec → minor version that has them without a feature gate.
_SINCE = {"podFailurePolicy": 26, "backoffLimitPerIndex": 29, "podReplacementPolicy": 29, "managedBy": 32}
_PREFIX = "batch.kubernetes.io"


def absent(minor: int) -> frozenset[str]:
    """Fields of the spec that a version of the server lacks."""
    return frozenset(name for name, since in _SINCE.items() if minor < since)


def description(minor: int) -> dict[str, Any]:
    """The part about the spec of the server's description of the group."""
    schema = built_in_schemas.of_kind("JobSpec") or {}
    properties = {name: {} for name in schema["properties"] if name not in absent(minor)}
    return {"openapi": "3.0.0", "components": {"schemas": {"io.k8s.api.batch.v1.JobSpec": {"properties": properties}}}}


def without_absent(job: Object, names: frozenset[str]) -> list[str]:
    """Drop fields that the server lacks; returns their paths."""
    found = [name for name in sorted(names) if name in (job.get("spec") or {})]
    for name in found:
        del job["spec"][name]
    return [f"spec.{name}" for name in found]


def filled(job: Object) -> Object:
    """Defaults of a new Job."""
    spec = job["spec"]
    counts = {} if {"completions", "parallelism"} & spec.keys() else {"completions": 1}
    replaced = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    return {
        **job,
        "spec": {
            "parallelism": 1,
            **counts,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": replaced,
            **spec,
        },
    }


def with_selector(job: Object) -> Object:
    """A Job that has its uid, with the selector and the labels of its pods."""
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    own = {"controller-uid": uid, "job-name": name, f"{_PREFIX}/controller-uid": uid, f"{_PREFIX}/job-name": name}
    template = job["spec"]["template"]
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **own}
    spec = {
        **job["spec"],
        "selector": {"matchLabels": {f"{_PREFIX}/controller-uid": uid}},
        "template": {**template, "metadata": {**metadata, "labels": labels}},
    }
    return {**job, "spec": spec}


def faults(job: Object) -> list[Cause]:
    """Rules of a Job beyond its schema."""
    wrong: list[Cause] = []
    spec, policy = job["spec"], job["spec"]["template"]["spec"].get("restartPolicy", "Always")
    if policy not in ("OnFailure", "Never"):
        told = f'Unsupported value: "{policy}": supported values: "OnFailure", "Never"'
        wrong.append(("spec.template.spec.restartPolicy", "FieldValueRequired", told))
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if (spec.get(name) or 0) < 0:
            told = f"Invalid value: {spec[name]}: must be greater than or equal to 0"
            wrong.append((f"spec.{name}", "FieldValueInvalid", told))
    if "podFailurePolicy" not in spec:
        return wrong
    if policy != "Never":
        told = f'Invalid value: "{policy}": only "Never" is supported when podFailurePolicy is specified'
        wrong.append(("spec.template.spec.restartPolicy", "FieldValueInvalid", told))
    if spec.get("podReplacementPolicy", "Failed") != "Failed":
        told = f'Unsupported value: "{spec["podReplacementPolicy"]}": supported values: "Failed"'
        wrong.append(("spec.podReplacementPolicy", "FieldValueNotSupported", told))
    return wrong


def changed_for_good(old: Object, new: Object) -> str:
    """The path of a changed field that must not change; empty: there is none. A suspended Job may get a new place."""
    for name in ("completions", "selector", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"):
        if old.get(name) != new.get(name):
            return f"spec.{name}"
    if old["template"] != new["template"] and not old.get("suspend"):
        return "spec.template"
    return ""
