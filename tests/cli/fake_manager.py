"""A daemon that is a dictionary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from nni_manager.client.manager_client import LogPart
from nni_manager.domain.errors import NotFound

Json = dict[str, Any]


def state(id: str = "k3v9x0qa", status: str = "RUNNING", **fields: Any) -> Json:
    """An experiment as the API describes it."""
    return {
        "id": id, "name": "digits", "platform": "local", "status": status, "hold": None, "errors": [],
        "createdMs": 1_790_000_000_000, "endedMs": None, "execDurationMs": 60_000, "logPath": f"/data/{id}",
        "trialConcurrency": 2, "maxTrialNumber": 10, "maxExperimentDuration": None, "maxTrialDuration": None,
        "counts": {}, "trialsMade": 0, "best": None, "revision": 1, "config": {"trialCommand": "python3 trial.py"},
        **fields,
    }  # fmt: skip


def trial(id: str, number: int, status: str = "SUCCEEDED", value: float | None = None, **fields: Any) -> Json:
    return {
        "id": id, "sequenceId": number, "status": status, "parameters": {"x": number}, "startedMs": 1_000,
        "endedMs": 66_000, "reason": None, "message": "", "wait": None, "finalValue": value,
        "finalResult": None if value is None else str(value), "logPath": f"/data/trials/{id}", **fields,
    }  # fmt: skip


class FakeManager:
    """Answers like `ManagerClient`; `calls` is what it was asked to change."""

    def __init__(self) -> None:
        self.known: dict[str, Json] = {}
        self.trials_of: dict[str, list[Json]] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.stream: list[Json] = []
        self.calls: list[tuple[Any, ...]] = []
        self.refusal: Exception | None = None

    def add(self, *states: Json) -> None:
        self.known.update({state["id"]: state for state in states})

    def daemon(self) -> Json:
        return {"pid": os.getpid(), "endsByItself": False}

    def create(self, config: str, **caller: Any) -> str:
        self._note("create", config, caller)
        self.add(state("new00000"))
        return "new00000"

    def experiments(self) -> list[Json]:
        return list(self.known.values())

    def experiment(self, id: str) -> Json:
        return self.known[id]

    def change(self, id: str, fields: Json) -> Json:
        self._note("change", id, fields)
        return self.known[id]

    def stop(self, id: str) -> None:
        self._note("stop", id)
        self.known[id]["status"] = "STOPPED"

    def stop_all(self) -> list[str]:
        open_ids = [id for id, one in self.known.items() if one["status"] != "STOPPED"]
        for id in open_ids:
            self.stop(id)
        return open_ids

    def resume(self, id: str) -> None:
        self._note("resume", id)

    def delete(self, id: str) -> None:
        self._note("delete", id)

    def events(self, id: str) -> Iterator[Json]:
        yield from self.stream

    def all_trials(self, id: str) -> Iterator[Json]:
        yield from self.trials_of.get(id, [])

    def trials(self, id: str, *, order: str, limit: int) -> Json:
        found = self.trials_of.get(id, [])
        ranked = sorted(
            (one for one in found if one["finalValue"] is not None),
            key=lambda one: one["finalValue"], reverse=order == "-final",
        )  # fmt: skip
        unranked = [one for one in found if one["finalValue"] is None]
        return {"total": len(found), "trials": [*ranked, *unranked][:limit]}

    def trial(self, id: str, trial_id: str) -> Json:
        for one in self.trials_of[id]:
            if one["id"] == trial_id:
                return one
        raise NotFound(f"there is no trial {trial_id}")

    def kill_trial(self, id: str, trial_id: str) -> None:
        self._note("kill", id, trial_id)

    def trial_log(self, id: str, trial_id: str, name: str, *, offset: int, limit: int) -> LogPart:
        if (trial_id, name) not in self.logs:
            raise NotFound(f"trial {trial_id} has no {name}")
        data = self.logs[trial_id, name]
        start = max(len(data) + offset, 0) if offset < 0 else offset
        return LogPart(data=data[start : start + limit], offset=start, size=len(data))

    def _note(self, *call: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(call)
