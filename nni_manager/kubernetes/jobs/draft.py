"""A dry run of a job's objects (`dryRun`): the cluster checks schemas, webhooks, quotas and pod security standards.

Nothing is created.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from nni_manager.domain.job import JobSpec
from nni_manager.domain.service import Wait
from nni_manager.kubernetes.api import names
from nni_manager.kubernetes.api.client import Object, Query, Refusal
from nni_manager.kubernetes.api.cluster import Cluster
from nni_manager.kubernetes.api.names import PODS, Resource
from nni_manager.kubernetes.jobs import submission
from nni_manager.platform_kit.contract import PreflightFinding, Severity

#: The label of a namespace with the standard that it enforces for pods.
ENFORCED = "pod-security.kubernetes.io/enforce"
RESTRICTED, BASELINE = "restricted", "baseline"
_HOST = ("hostNetwork", "hostPID", "hostIPC")
#: Volume kinds allowed for restricted pods.
_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_PROFILES = ("RuntimeDefault", "Localhost")

_QUERY = (("dryRun", "All"),)
_STRICT = (*_QUERY, ("fieldValidation", "Strict"))
#: Webhooks without dry runs, or without an answer now, prove nothing about the job.
_SAYS_NOTHING = re.compile(r"does not support dry run|failed calling webhook", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown field(?: \"(?P<path>[^\"]+)\")?")
#: Quotas are momentary, and jobs wait for room.
_QUOTA = re.compile(r"exceeded quota", re.IGNORECASE)
_SECURITY = re.compile(r"violates PodSecurity", re.IGNORECASE)
_FIX = "check the fields of the section, and podTemplate"
_SECURITY_FIX = (
    "set securityContext of pod and container in podTemplate as the namespace requires, or use another namespace"
)

#: (spec, name, labels) → the job's manifest.
Manifest = Callable[[JobSpec, str, dict[str, str]], Object]
#: A pod of the job's template → as its operator creates it.
AsMade = Callable[[Object], Object]


def spec() -> JobSpec:
    """A placeholder job for dry runs."""
    return JobSpec(
        name="nni_exp_preflight_trial_draft",
        experiment_id="preflight",
        trial_id="draft",
        attempt=1,
        sequence_id=0,
        command="true",
        parameter_record="{}",
        protocol_environment={},
        caller_environment={},
        code_directory="/",
        attempt_directory="/",
    )


async def findings(
    cluster: Cluster,
    resource: Resource,
    name: str,
    service: str,
    manifest: Manifest,
    as_made: AsMade,
    *,
    fields: str,
) -> list[PreflightFinding]:
    """Findings about what the cluster rejects in the job or its pods. `fields`: the section's fields that hold parts of
    pods."""
    drafted = spec()
    labels = names.job_labels(drafted, service, name, "nobody")
    whole = submission.body(resource, manifest(drafted, name, labels), drafted, name, cluster.namespace, labels)
    pods = [as_made(pod) for pod in _pods(whole["spec"])]
    may_show = await cluster.may("create", PODS)
    found: list[PreflightFinding] = []
    unknown: list[str] = []
    for kind, body in ((resource, whole), *((PODS, pod) for pod in pods if may_show)):
        refusal = await _refusal(cluster, kind, body, _STRICT)
        if refusal is not None and (paths := [one["path"] or "" for one in _UNKNOWN.finditer(refusal.message)]):
            # in a job, the path of a pod's field is longer
            if not all(any(f".{known}".endswith(f".{path}") for known in unknown) for path in paths):
                sentence = f"the cluster drops unknown fields: {refusal.message}"
                found.append(PreflightFinding(Severity.WARNING, kind.kind, sentence, f"correct {fields}"))
            unknown += paths
            refusal = await _refusal(cluster, kind, body, _QUERY)  # as with actual jobs
        found += _rejections(kind, refusal)
    standard = "" if may_show else await _standard(cluster)
    for against in filter(None, (violations(pod["spec"], standard) for pod in pods)):
        sentence = f"the namespace enforces the standard {standard} and would reject the pods: {'; '.join(against)}"
        found.append(PreflightFinding(Severity.WRONG, PODS.kind, sentence, _SECURITY_FIX))
    return found


async def _refusal(cluster: Cluster, resource: Resource, body: Object, query: Query) -> Refusal | None:
    """The cluster's refusal of an object in a dry run; None: it would accept it."""
    try:
        await cluster.create(resource, body, query)
    except Refusal as refusal:
        return refusal
    return None


def _rejections(resource: Resource, refusal: Refusal | None) -> Iterator[PreflightFinding]:
    """A finding if the refusal is about the object, and not about the moment."""
    if refusal is None or refusal.status not in (400, 403, 422):
        return
    if not (_SAYS_NOTHING.search(refusal.message) or _QUOTA.search(refusal.message)):
        fix = _SECURITY_FIX if _SECURITY.search(refusal.message) else _FIX
        yield PreflightFinding(Severity.WRONG, resource.kind, f"the cluster would reject it: {refusal.message}", fix)


async def lacking_quota(cluster: Cluster, job: Object) -> Wait | None:
    """The wait reason of a job if a quota has no room for its pods now; None: it has, or pods may not be created.

    Raises PlatformError.
    """
    for pod in _pods(job.get("spec")):
        refusal = await _refusal(cluster, PODS, pod, _QUERY)
        if refusal is not None and (found := submission.quota(refusal)) is not None:
            return found
    return None


async def _standard(cluster: Cluster) -> str:
    """The Pod Security Standard that the namespace enforces; empty: none, or unknown."""
    try:
        namespace = await cluster.call("GET", f"/api/v1/namespaces/{cluster.namespace}")
    except Refusal:
        return ""
    return str((namespace["metadata"].get("labels") or {}).get(ENFORCED) or "")


def _pods(value: Any) -> Iterator[Object]:
    """All distinct pod specs in a job's object."""
    told: list[Object] = []
    for template in _templates(value):
        meta = {**(template.get("metadata") or {}), "name": "nni-preflight"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        if pod not in told:
            told.append(pod)
            yield pod


def _templates(value: Any) -> Iterator[Object]:
    if isinstance(value, list):
        for one in value:
            yield from _templates(one)
    elif isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        else:
            for one in value.values():
                yield from _templates(one)


def violations(spec: Object, standard: str) -> list[str]:
    """Sentences about violations of the standard, `restricted` or `baseline`, by a pod's `spec`; none for others."""
    if standard not in (RESTRICTED, BASELINE):
        return []
    return [*_against_baseline(spec), *(_against_restricted(spec) if standard == RESTRICTED else ())]


def _against_baseline(spec: Object) -> Iterator[str]:
    for field in _HOST:
        if spec.get(field):
            yield f"{field} must not be set"
    for name, own in _containers(spec):
        if own.get("privileged"):
            yield f"container {name} must not be privileged"
    for volume in spec.get("volumes") or ():
        if "hostPath" in volume:
            yield f"volume {volume['name']} must not be a hostPath"


def _against_restricted(spec: Object) -> Iterator[str]:
    whole: dict[str, Any] = spec.get("securityContext") or {}
    for name, own in _containers(spec):
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"container {name} must set securityContext.allowPrivilegeEscalation to false"
        if "ALL" not in ((own.get("capabilities") or {}).get("drop") or ()):
            yield f"container {name} must drop ALL capabilities in its securityContext"
        if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield f"pod or container {name} must set securityContext.runAsNonRoot to true"
        if (own.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type") not in _PROFILES:
            yield f"pod or container {name} must set securityContext.seccompProfile.type to {_PROFILES[0]}"
    for volume in spec.get("volumes") or ():
        for kind in sorted(set(volume) - {"name"} - _VOLUMES):
            yield f"volume {volume['name']} must not be of the kind {kind}"


def _containers(spec: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in (*(spec.get("initContainers") or ()), *spec["containers"]):
        yield one.get("name", ""), one.get("securityContext") or {}
