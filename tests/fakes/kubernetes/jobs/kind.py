"""Defaults of a Job, the labels of its pods, and the fields that a server of each version knows."""

from __future__ import annotations

from typing import Any

from tests.fakes.kubernetes import built_in_schemas
from tests.fakes.kubernetes.store import Object

DESCRIPTION_PATH = "/openapi/v3/apis/batch/v1"
#: Fields of the spec → minor version that knows them, minor version whose feature gate is on.
_SINCE = {
    "podFailurePolicy": (25, 26),
    "backoffLimitPerIndex": (28, 29),
    "maxFailedIndexes": (28, 29),
    "podReplacementPolicy": (28, 29),
    "successPolicy": (30, 31),
    "managedBy": (30, 32),
}
_PREFIX = "batch.kubernetes.io"
_MOST_FAILURES = 2**31 - 1
#: Warning for a deletion without a propagation policy.
ORPHANING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def unknown(minor: int) -> frozenset[str]:
    """Fields of the spec that a version of the server does not know."""
    return frozenset(name for name, (since, _) in _SINCE.items() if minor < since)


def disabled(minor: int) -> frozenset[str]:
    """Fields of the spec that a version of the server drops, without a warning if it knows them."""
    return frozenset(name for name, (_, since) in _SINCE.items() if minor < since)


def description(minor: int) -> dict[str, Any]:
    """The part about the spec of the server's description of the group. It includes fields that are disabled."""
    schema = built_in_schemas.of_kind("JobSpec") or {}
    properties = {name: {} for name in schema["properties"] if name not in unknown(minor)}
    return {"openapi": "3.0.0", "components": {"schemas": {"io.k8s.api.batch.v1.JobSpec": {"properties": properties}}}}


def without(job: Object, names: frozenset[str]) -> list[str]:
    """Drop fields of the spec; returns their paths."""
    found = [name for name in sorted(names) if name in (job.get("spec") or {})]
    for name in found:
        del job["spec"][name]
    return [f"spec.{name}" for name in found]


def filled(job: Object, pod_spec: Object) -> Object:
    """Defaults. `pod_spec`: that of its pods, with its own defaults."""
    spec = {name: value for name, value in (job.get("spec") or {}).items() if value is not None}
    template = spec.get("template") or {}
    counts = {} if {"completions", "parallelism"} & spec.keys() else {"completions": 1}
    metadata = dict(job["metadata"])
    if (labels := (template.get("metadata") or {}).get("labels")) and not metadata.get("labels"):
        metadata["labels"] = labels
    defaults = {
        "parallelism": 1,
        **counts,
        "backoffLimit": _MOST_FAILURES if "backoffLimitPerIndex" in spec else 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
    }
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"
    return {**job, "metadata": metadata, "spec": {**defaults, **spec, "template": {**template, "spec": pod_spec}}}


def prepared(job: Object, dropped: frozenset[str]) -> Object:
    """A new Job that has its uid: without disabled fields and status, with the selector and the labels of its pods."""
    meta, spec = job["metadata"], dict(job["spec"])
    if not spec.get("manualSelector"):
        uid, name, template = meta["uid"], meta["name"], spec["template"]
        own = {"controller-uid": uid, "job-name": name, f"{_PREFIX}/controller-uid": uid, f"{_PREFIX}/job-name": name}
        metadata = template.get("metadata") or {}
        labels = {**own, **(metadata.get("labels") or {})}
        selector = spec.get("selector") or {}
        matched = {f"{_PREFIX}/controller-uid": uid, **(selector.get("matchLabels") or {})}
        spec |= {
            "selector": {**selector, "matchLabels": matched},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        }
    made = {**job, "metadata": {**meta, "generation": 1}, "spec": spec, "status": {}}
    without(made, dropped)
    return made
