"""Ends of tasks and frameworks: completion codes of FrameworkController, and retries."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.kubernetes.refusals import Refused
from tests.fakes.kubernetes.store import Object

Completion = dict[str, Any]
_OF_CONTAINER = {
    200: ("ContainerTransientFailed", ["Transient"]),
    210: ("ContainerPermanentFailed", ["Permanent"]),
    201: ("ContainerTransientConflictFailed", ["Transient", "Conflict"]),
}


def _failed(code: int, phrase: str, attributes: list[str], diagnostics: str) -> Completion:
    kind = {"name": "Failed", "attributes": attributes}
    return {"code": code, "phrase": phrase, "type": kind, "diagnostics": diagnostics}


def succeeded(diagnostics: str = "Pod succeeded") -> Completion:
    return {
        "code": 0,
        "phrase": "Succeeded",
        "type": {"name": "Succeeded", "attributes": []},
        "diagnostics": diagnostics,
    }


def stopped() -> Completion:
    return _failed(-210, "StopFrameworkRequested", ["Permanent"], "User has requested to stop the Framework")


def config_map_deleted() -> Completion:
    return _failed(-100, "ConfigMapExternalDeleted", ["Transient"], "ConfigMap was deleted by others")


def pod_deleted() -> Completion:
    return _failed(-101, "PodExternalDeleted", ["Transient"], "Pod was deleted by others")


def attempt_over() -> Completion:
    return _failed(-220, "FrameworkAttemptCompletion", ["Permanent"], "Stop to complete current FrameworkAttempt")


def not_created(refused: Refused) -> Completion | None:
    """The end of a task whose pod cannot be created; None: retry, because the cause may pass."""
    diagnostics = f"Failed to create Pod: {json.dumps({'ErrStatus': refused.status()}, separators=(',', ':'))}"
    if "exceeded quota" in refused.message or "object provided is unrecognized" in refused.message:
        return None
    if refused.code in (400, 403):
        return _failed(-310, "PodCreationUnknownError", [], diagnostics)
    if refused.code in (413, 422):
        return _failed(-200, "PodCreationPermanentError", ["Permanent"], diagnostics)
    return None


def triggered(ended: Completion, message: str, role: str, index: int) -> Completion:
    """The end of the framework, caused by one task."""
    kept = {name: value for name, value in ended.items() if name != "pod"}
    return {**kept, "trigger": {"message": message, "taskRoleName": role, "taskIndex": index}}


def of_pod(pod: Object) -> Completion:
    containers = _containers(pod)
    if pod["status"].get("phase") == "Succeeded":
        return {**succeeded(), "pod": {"containers": containers}}
    told = {name: pod["status"][name] for name in ("reason", "message") if pod["status"].get(name)}
    shown = {**told, "containers": containers}
    if told.get("reason") == "Evicted":  # the first pattern of its default config
        diagnostics = f"Pod failed: PodPattern matched: {json.dumps(shown, separators=(',', ':'))}"
        return {**_failed(-1000, "PodEvicted", ["Transient"], diagnostics), "pod": shown}
    codes = [each["code"] for each in containers if each["code"]]
    special = next((code for code in codes if code in _OF_CONTAINER), None)
    if special is not None:
        phrase, attributes = _OF_CONTAINER[special]
        diagnostics = f"Pod failed: PodPattern matched: {json.dumps(shown, separators=(',', ':'))}"
        return {**_failed(special, phrase, attributes, diagnostics), "pod": shown}
    diagnostics = f"Pod failed: PodPattern unmatched: {json.dumps(shown, separators=(',', ':'))}"
    if codes:
        return {**_failed(codes[-1], "ContainerUnrecognizedFailed", [], diagnostics), "pod": shown}
    return {**_failed(-300, "PodFailedWithoutFailedContainer", [], diagnostics), "pod": shown}


def _containers(pod: Object) -> list[dict[str, Any]]:
    status, told = pod["status"], []
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if ended := each["state"].get("terminated"):
            message = {"message": ended["message"]} if ended.get("message") else {}
            told.append({"name": each["name"], "reason": ended["reason"], **message, "code": ended["exitCode"]})
    return told


def retried(policy: Object, counted: Object, ended: Completion) -> bool:
    """Whether another attempt follows; `counted`: its counters in the status."""
    most, attributes = policy.get("maxRetryCount", 0), ended["type"]["attributes"]
    if ended["type"]["name"] == "Succeeded":
        again, accountable = most == -2, False
    elif policy.get("fancyRetryPolicy") and "Permanent" in attributes:
        again, accountable = False, False
    elif policy.get("fancyRetryPolicy") and "Transient" in attributes:
        again, accountable = True, False
    else:
        again, accountable = most in (-1, -2) or counted["accountableRetriedCount"] < most, True
    if again:
        counted["totalRetriedCount"] += 1
        counted["accountableRetriedCount"] += accountable
    return again
