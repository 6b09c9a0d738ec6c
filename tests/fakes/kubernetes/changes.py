"""Rules for changes of existing objects: fields that are fixed, and preconditions of a deletion."""

from __future__ import annotations

from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.jobs import rules
from tests.fakes.kubernetes.kinds import JOBS, Kind
from tests.fakes.kubernetes.store import Object


def require_changeable(kind: Kind, current: Object, obj: Object) -> None:
    name = current["metadata"]["name"]
    if kind.key == "pods" and _fixed_part(current["spec"]) != _fixed_part(obj["spec"]):
        told = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, …"
        raise refusals.invalid("Pod", "", name, [("spec", "FieldValueForbidden", told)])
    if kind.key == JOBS.key and (wrong := rules.changes(current, obj)):
        raise refusals.invalid("Job", "batch", name, wrong)
    if kind.kind == "AdaptDLJob" and current.get("spec") != obj.get("spec"):
        told = 'admission webhook "adaptdl-validator" denied the request: updates to job spec are not allowed'
        raise refusals.Refused(422, "Invalid", told)
    if "deletionTimestamp" in current["metadata"]:
        had, has = current["metadata"].get("finalizers") or [], obj["metadata"].get("finalizers") or []
        if new := [each for each in has if each not in had]:
            told = f"Forbidden: no new finalizers can be added if the object is being deleted, found new: {new}"
            raise refusals.invalid(kind.kind, kind.group, name, [("metadata.finalizers", "FieldValueForbidden", told)])


def require_preconditions(kind: Kind, current: Object, wanted: dict[str, str]) -> None:
    """Those of a deletion."""
    for name, member in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(name) and wanted[name] != current["metadata"][name]:
            why = f"Precondition failed: {member} in precondition: {wanted[name]}, {member} in object meta: "
            raise refusals.conflict(
                kind.plural, kind.group, current["metadata"]["name"], why + current["metadata"][name]
            )


def _fixed_part(spec: dict[str, Any]) -> dict[str, Any]:
    free = (
        "tolerations",
        "activeDeadlineSeconds",
        "terminationGracePeriodSeconds",
        "nodeName",
        "containers",
        "initContainers",
    )
    fixed = {name: value for name, value in spec.items() if name not in free}
    for part in ("containers", "initContainers"):
        fixed[part] = [{k: v for k, v in each.items() if k != "image"} for each in spec.get(part) or []]
    return fixed
