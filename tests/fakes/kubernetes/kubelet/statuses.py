"""The status of a pod and of its containers, in the API's format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.kubernetes.defaults import now
from tests.fakes.kubernetes.store import Object

REASONS = {0: "Completed"}


@dataclass
class ContainerStatus:
    """One container in the pod's status."""

    name: str
    image: str
    state: dict[str, Any] = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last: dict[str, Any] = field(default_factory=dict)
    restarts: int = 0
    id: str = ""

    def waits(self, reason: str, message: str = "") -> None:
        told = {"reason": reason, **({"message": message} if message else {})}
        self.state = {"waiting": told}

    def runs(self, container_id: str) -> None:
        self.id = container_id
        self.state = {"running": {"startedAt": now()}}

    def ended(self, code: int, reason: str = "", message: str = "") -> None:
        started = self.state.get("running", {}).get("startedAt")
        told = {
            "exitCode": code,
            "reason": reason or REASONS.get(code, "Error"),
            "startedAt": started,
            "finishedAt": now(),
            "containerID": self.id,
        }
        self.state = {"terminated": told | ({"message": message} if message else {})}

    def again(self) -> None:
        """Move the current state to the last state."""
        self.last = self.state
        self.restarts += 1

    @property
    def exit_code(self) -> int | None:
        ended = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    @property
    def running(self) -> bool:
        return "running" in self.state

    def told(self, of_init: bool = False) -> dict[str, Any]:
        ready = (self.exit_code == 0) if of_init else self.running
        told = {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": ready,
            "restartCount": self.restarts,
            "started": self.running,
            "state": self.state,
            "lastState": self.last,
        }
        return told | ({"containerID": self.id} if self.id else {})

    @classmethod
    def read(cls, told: dict[str, Any]) -> ContainerStatus:
        return cls(
            told["name"],
            told["image"],
            told["state"],
            told["lastState"],
            told["restartCount"],
            told.get("containerID", ""),
        )


def condition(kind: str, true: bool, reason: str = "", message: str = "") -> dict[str, Any]:
    told = {"type": kind, "status": "True" if true else "False", "lastProbeTime": None, "lastTransitionTime": now()}
    return told | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def conditions(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """New conditions keep the time of their last change."""
    by_type = {each["type"]: each for each in old}
    for each in new:
        before = by_type.get(each["type"])
        if before is not None and before["status"] == each["status"]:
            each = {**each, "lastTransitionTime": before["lastTransitionTime"]}
        by_type[each["type"]] = each
    return list(by_type.values())


def of_pod(
    phase: str, init: list[ContainerStatus], containers: list[ContainerStatus], old: Object, ip: str
) -> dict[str, Any]:
    """The status of a pod that a node has."""
    ready = all(each.running for each in containers)
    why = "" if ready else "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    if phase == "Failed":
        why = "PodFailed"
    initialized = all(each.exit_code == 0 for each in init)
    new = [
        condition("Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
        condition("Ready", ready, why),
        condition("ContainersReady", ready, why),
        condition("PodScheduled", True),
    ]
    told = {
        **{name: value for name, value in old.items() if name in ("qosClass", "startTime", "reason", "message")},
        "phase": phase,
        "conditions": conditions(old.get("conditions") or [], new),
        "hostIP": "127.0.0.1",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "containerStatuses": [each.told() for each in containers],
    }
    if init:
        told["initContainerStatuses"] = [each.told(of_init=True) for each in init]
    return {"startTime": now(), **told}
