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
from nni_manager.kubernetes.api.client import Object, Refusal
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
    unknown: list[str] = []
    found = await _shown(cluster, resource, whole, fields, unknown)
    may_show, standard = await cluster.may("create", PODS), await _standard(cluster)
    for pod in map(as_made, _pods(whole["spec"])):
        if may_show:
            found += await _shown(cluster, PODS, pod, fields, unknown)
        elif against := violations(pod["spec"], standard):
            sentence = f"the namespace enforces the standard {standard} and would reject the pods: "
            found.append(PreflightFinding(Severity.WRONG, PODS.kind, sentence + "; ".join(against), _SECURITY_FIX))
    return found


async def lacking_quota(cluster: Cluster, job: Object) -> Wait | None:
    """The wait reason of a job if a quota has no room for its pods now; None: it has, or pods may not be created.

    Raises PlatformError.
    """
    for pod in _pods(job.get("spec")):
        try:
            await cluster.create(PODS, pod, _QUERY)
        except Refusal as refusal:
            if (found := submission.quota(refusal)) is not None:
                return found
    return None


async def _standard(cluster: Cluster) -> str:
    """The Pod Security Standard that the namespace enforces; empty: none, or unknown."""
    try:
        namespace = await cluster.call("GET", f"/api/v1/namespaces/{cluster.namespace}")
    except Refusal:
        return ""
    return str((namespace["metadata"].get("labels") or {}).get(ENFORCED) or "")


async def _shown(
    cluster: Cluster, resource: Resource, body: Object, fields: str, unknown: list[str], *, is_strict: bool = True
) -> list[PreflightFinding]:
    """Findings of a dry run of an object. Without `is_strict` the cluster silently drops unknown fields, as it does
    with actual jobs.

    `unknown`: paths of unknown fields that earlier findings name; gets those of this object.
    """
    try:
        await cluster.create(resource, body, _STRICT if is_strict else _QUERY)
    except Refusal as refusal:
        if is_strict and _UNKNOWN.search(refusal.message):
            paths = [match["path"] or "" for match in _UNKNOWN.finditer(refusal.message)]
            sentence = f"the cluster drops unknown fields: {refusal.message}"
            dropped = PreflightFinding(Severity.WARNING, resource.kind, sentence, f"correct {fields}")
            # in a job, the path of a pod's field is longer
            is_known = all(any(f".{known}".endswith(f".{path}") for known in unknown) for path in paths)
            unknown += paths
            return [
                *([] if is_known else [dropped]),
                *await _shown(cluster, resource, body, fields, unknown, is_strict=False),
            ]
        is_about_now = _SAYS_NOTHING.search(refusal.message) or _QUOTA.search(refusal.message)
        if refusal.status in (400, 403, 422) and not is_about_now:
            fix = _SECURITY_FIX if _SECURITY.search(refusal.message) else _FIX
            sentence = f"the cluster would reject it: {refusal.message}"
            return [PreflightFinding(Severity.WRONG, resource.kind, sentence, fix)]
    return []


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
