"""Resource quotas of a namespace: limits for the total of its pods."""

from __future__ import annotations

from tests.fakes.kubernetes import refusals
from tests.fakes.kubernetes.admission import quantity
from tests.fakes.kubernetes.kinds import PODS, Kind
from tests.fakes.kubernetes.store import Object, Store


def require_room(store: Store, kind: Kind, pod: Object) -> None:
    """Check the quotas for a new pod."""
    if kind.key != PODS.key:
        return
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for quota in store.all("resourcequotas", namespace):
        others = [
            each
            for each in store.all(PODS.key, namespace)
            if each["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        for resource, hard in ((quota.get("spec") or {}).get("hard") or {}).items():
            wanted, used = _asked(pod, resource), sum(_asked(each, resource) for each in others)
            if wanted and used + wanted > quantity(hard):
                told = f"exceeded quota: {quota['metadata']['name']}, requested: {resource}={wanted:g}, "
                told += f"used: {resource}={used:g}, limited: {resource}={hard}"
                details = {"name": name, "kind": "pods"}
                raise refusals.Refused(403, "Forbidden", f'pods "{name}" is forbidden: {told}', details)


def _asked(pod: Object, resource: str) -> float:
    """`pods`, `requests.cpu`, `limits.memory`, or a short name of a request."""
    if resource in ("pods", "count/pods"):
        return 1.0
    part, _, name = (
        resource.partition(".") if resource.startswith(("requests.", "limits.")) else ("requests", "", resource)
    )
    return sum(
        quantity(((container.get("resources") or {}).get(part) or {}).get(name, 0))
        for container in pod["spec"]["containers"]
    )
