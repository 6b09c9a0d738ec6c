"""Requirements of a namespace for new pods beyond their schema: an existing account, and PodSecurity `restricted`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.kinds import PODS, Kind
from tests.fakes.kubernetes.store import Object, Store

_ENFORCED = "pod-security.kubernetes.io/enforce"
_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def require_admitted(store: Store, kind: Kind, pod: Object) -> None:
    if kind.key != PODS.key:
        return
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    account = pod["spec"].get("serviceAccountName") or "default"
    if account != "default" and store.get("serviceaccounts", (namespace, account)) is None:
        told = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
        raise _forbidden(name, told)
    labels = (store.get("namespaces", ("", namespace)) or {"metadata": {}})["metadata"].get("labels") or {}
    if labels.get(_ENFORCED) == "restricted" and (wrong := ", ".join(_against_restricted(pod["spec"]))):
        raise _forbidden(name, f'violates PodSecurity "restricted:latest": {wrong}')


def _against_restricted(spec: dict[str, Any]) -> Iterator[str]:
    whole = spec.get("securityContext") or {}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        own, name = container.get("securityContext") or {}, container["name"]
        if own.get("allowPrivilegeEscalation") is not False:
            yield (
                f'allowPrivilegeEscalation != false (container "{name}" must set '
                "securityContext.allowPrivilegeEscalation=false)"
            )
        if "ALL" not in ((own.get("capabilities") or {}).get("drop") or []):
            yield f'unrestricted capabilities (container "{name}" must set securityContext.capabilities.drop=["ALL"])'
        if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield f'runAsNonRoot != true (pod or container "{name}" must set securityContext.runAsNonRoot=true)'
        profile = own.get("seccompProfile") or whole.get("seccompProfile") or {}
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield f'seccompProfile (pod or container "{name}" must set securityContext.seccompProfile.type)'
    for volume in spec.get("volumes") or []:
        for used in set(volume) - {"name"} - _VOLUMES:
            yield f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{used}")'


def _forbidden(name: str, told: str) -> refusals.Refused:
    return refusals.Refused(403, "Forbidden", f'pods "{name}" is forbidden: {told}', {"name": name, "kind": "pods"})
