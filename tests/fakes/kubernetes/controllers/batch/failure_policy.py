"""What the podFailurePolicy of a Job says about a failed pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.fakes.kubernetes.store import Object


@dataclass(frozen=True)
class Verdict:
    """The consequence of the first rule that matches; without one, the failure counts."""

    #: Message with which the Job fails; empty: the Job goes on.
    message: str = ""
    #: Whether the failure counts towards the backoffLimit.
    is_counted: bool = True


def verdict(spec: Object, pod: Object) -> Verdict:
    for at, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        if matched := _matched(rule, pod):
            if rule["action"] == "FailJob":
                return Verdict(f"{matched} matching FailJob rule at index {at}")
            return Verdict(is_counted=rule["action"] != "Ignore")
    return Verdict()


def _matched(rule: Object, pod: Object) -> str:
    """The start of the message about a rule that matches; empty: it does not match."""
    where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if codes := rule.get("onExitCodes"):
        failed = _failed_container(pod, codes)
        return "" if failed is None else f"Container {failed[0]} for pod {where} failed with exit code {failed[1]}"
    patterns = {(one["type"], one["status"]) for one in rule.get("onPodConditions") or ()}
    for one in pod["status"].get("conditions") or ():
        if (one["type"], one["status"]) in patterns:
            return f"Pod {where} has condition {one['type']}"
    return ""


def _failed_container(pod: Object, wanted: dict[str, Any]) -> tuple[str, int] | None:
    """Name and exit code of the first matching container. Init containers follow the others; code 0 never matches."""
    for part in ("containerStatuses", "initContainerStatuses"):
        for container in pod["status"].get(part) or ():
            code = (container["state"].get("terminated") or {}).get("exitCode")
            is_meant = wanted.get("containerName") in (None, container["name"])
            if code and is_meant and (code in wanted["values"]) == (wanted["operator"] == "In"):
                return container["name"], code
    return None
