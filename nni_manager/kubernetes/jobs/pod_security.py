"""What a namespace that enforces the Pod Security Standards has against a pod, where the cluster cannot be asked: a dry
run of a pod needs the right to create pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nni_manager.kubernetes.api.client import Object

#: The label of a namespace that names the standard which pods must keep there.
ENFORCED = "pod-security.kubernetes.io/enforce"
RESTRICTED, BASELINE = "restricted", "baseline"
_HOST = ("hostNetwork", "hostPID", "hostIPC")
#: Kinds of volumes that a restricted pod may have.
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


def violations(spec: Object, standard: str) -> list[str]:
    """Sentences about what a pod's `spec` lacks by the standard, `restricted` or `baseline`; any other asks nothing."""
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
