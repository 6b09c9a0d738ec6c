"""A fake client of the daemon, with experiments in dictionaries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nni_manager.client.manager_client import LogPart
from nni_manager.domain.errors import NotFound

Json = dict[str, Any]
#: Text of a valid experiment file.
CONFIG = "searchSpace: {x: {_type: choice, _value: [1]}}\ntrialCommand: python3 trial.py\n"


def state(id: str = "k3v9x0qa", status: str = "RUNNING", **fields: Any) -> Json:
    """An experiment as the API describes it."""
    return {
        "id": id,
        "name": "digits",
        "platform": "local",
        "status": status,
        "hold": None,
        "errors": [],
        "waitsFor": None,
        "endpoint": None,
        "createdMs": 1_790_000_000_000,
        "endedMs": None,
        "execDurationMs": 60_000,
        "logPath": f"/data/{id}",
        "trialConcurrency": 2,
        "maxTrialNumber": 10,
        "maxExperimentDuration": None,
        "maxTrialDuration": None,
        "counts": {},
        "trialsMade": 0,
        "best": None,
        "commonFailure": None,
        "noMoreTrials": "",
        "revision": 1,
        "warnings": [],
        "services": [],
        "references": [],
        "variables": 3,
        "config": {"trialCommand": "python3 trial.py"},
        **fields,
    }


def service(name: str, status: str | None = "up", **fields: Any) -> Json:
    return {
        "name": name,
        "platform": name.partition("-")[0],
        "status": status,
        "sinceMs": 1_790_000_000_000,
        "sentence": "",
        "room": None,
        "limit": None,
        "openAttempts": 0,
        **fields,
    }


def trial(id: str, number: int, status: str = "SUCCEEDED", value: float | None = None, **fields: Any) -> Json:
    return {
        "id": id,
        "sequenceId": number,
        "status": status,
        "parameters": {"x": number},
        "startedMs": 1_000,
        "endedMs": 66_000,
        "reason": None,
        "message": "",
        "wait": None,
        "finalValue": value,
        "finalResult": None if value is None else str(value),
        "logPath": f"/data/trials/{id}",
        "attempt": 1,
        "lastWords": "",
        "failureKey": None,
        "codeState": None,
        "lastValue": None,
        "intermediates": 0,
        "attempts": [],
        "service": "local",
        "place": "",
        "link": "",
        **fields,
    }


class FakeManager:
    """Answers like `ManagerClient`; `calls` records the changes."""

    is_here = True

    def __init__(self) -> None:
        self.known: dict[str, Json] = {}
        self.trials_of: dict[str, list[Json]] = {}
        self.metrics_of: dict[str, list[Json]] = {}
        self.code: dict[str, bytes] = {}
        self.listeners: list[Json] = []
        self.experiment_logs: dict[str, bytes] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.stream: list[Json] = []
        self.calls: list[tuple[Any, ...]] = []
        self.refusal: Exception | None = None
        self.left_objects: list[Json] = []
        self.left_trouble = ""
        self.cleaned: list[Json] = []
        self.plans: list[Json] = []
        self.provenance_of: dict[str, Json] = {}
        self.disk_warning = ""
        self.boards: list[Json] = []
        #: What a new experiment is given.
        self.endpoint_of_new: Json | None = None

    def add(self, *states: Json) -> None:
        self.known.update({state["id"]: state for state in states})

    def daemon(self) -> Json:
        return {"pid": os.getpid(), "endsByItself": False, "listeners": self.listeners}

    def create(self, config: str, **caller: Any) -> str:
        self._note("create", config, caller)
        self.add(state("new00000", endpoint=self.endpoint_of_new))
        return "new00000"

    def experiments(self) -> list[Json]:
        return list(self.known.values())

    def experiment(self, id: str) -> Json:
        return self.known[id]

    def provenance(self, id: str) -> Json | None:
        return self.provenance_of.get(id)

    def disk_use(self, id: str) -> Json:
        parts = {"database": 40_960, "trials": 2_000_000, "checkpoints": 0, "code": 0, "logs": 4096, "other": 0}
        return {"total": sum(parts.values()), **parts, "files": 12}

    def report(self, id: str) -> bytes:
        return "<!doctype html>é".encode()

    def start_tensorboard(self, id: str, trials: Sequence[str], port: int | None = None) -> Json:
        self._note("tensorboard", id, list(trials), port)
        port = port or 6006
        self.boards.append({"trials": list(trials), "port": port, "url": f"http://127.0.0.1:{port}/"})
        return self.boards[-1]

    def tensorboards(self, id: str) -> list[Json]:
        return self.boards

    def stop_tensorboards(self, id: str) -> None:
        self.boards = []

    def disk(self) -> Json:
        return {"folder": "/data", "free": 1, "total": 2, "least": 0, "warning": self.disk_warning}

    def change(self, id: str, fields: Json) -> Json:
        self._note("change", id, fields)
        return self.known[id]

    def clean(self, platforms: Sequence[str]) -> list[Json]:
        self._note("clean", list(platforms))
        return self.cleaned

    def left(self, config: str, *, remove: Sequence[str] | None = None, **caller: Any) -> list[Json]:
        self._note("left", remove)
        objects = [one for one in self.left_objects if remove is None or one["experiment"] in remove]
        return [{"service": "kubeflow", "platform": "kubeflow", "objects": objects, "trouble": self.left_trouble}]

    def plan(self, config: str, **caller: Any) -> list[Json]:
        self._note("plan", config, caller)
        return self.plans

    def stop(self, id: str) -> None:
        self._note("stop", id)
        self.known[id]["status"] = "STOPPED"

    def stop_all(self) -> list[str]:
        open_ids = [id for id, one in self.known.items() if one["status"] != "STOPPED"]
        for id in open_ids:
            self.stop(id)
        return open_ids

    def resume(self, id: str, **how: Any) -> None:
        self._note("resume", id, how)
        self.known.setdefault(id, state(id))

    def view(self, id: str, **how: Any) -> None:
        self._note("view", id, how)
        self.known.setdefault(id, state(id, "VIEWED"))

    def delete(self, id: str) -> None:
        self._note("delete", id)

    def events(self, id: str) -> Iterator[Json]:
        yield from self.stream

    def export(self, id: str) -> list[Json]:
        known = {one["trialId"] for one in self.experiment(id)["paretoSet"]}
        return [{"trialJobId": one["id"], "pareto": one["id"] in known} for one in self.trials_of.get(id, [])]

    def import_data(self, id: str, data: list[Json]) -> None:
        self._note("import", id, data)

    def has_code(self, sha256: str) -> bool:
        return sha256 in self.code

    def send_code(self, archive: Path, sha256: str) -> None:
        self._note("code", sha256)
        self.code[sha256] = archive.read_bytes()

    def all_trials(self, id: str, *, status: str | None = None) -> Iterator[Json]:
        yield from self._with_status(id, status)

    def metrics(self, id: str, *, after: int, limit: int) -> list[Json]:
        """Two at a time, whatever the limit."""
        found = [one for one in self.metrics_of.get(id, []) if one["id"] > after]
        return found[: min(limit, 2)]

    def trials(
        self, id: str, *, order: str = "sequence", limit: int, offset: int = 0, status: str | None = None
    ) -> Json:
        found = self._with_status(id, status)
        if order == "-sequence":
            return {"total": len(found), "trials": found[::-1][offset : offset + limit]}
        if order == "sequence":
            return {"total": len(found), "trials": found[offset : offset + limit]}
        ranked = sorted(
            (one for one in found if one["finalValue"] is not None),
            key=lambda one: one["finalValue"],
            reverse=order == "-final",
        )
        unranked = [one for one in found if one["finalValue"] is None]
        return {"total": len(found), "trials": [*ranked, *unranked][:limit]}

    def trial(self, id: str, trial_id: str) -> Json:
        for one in self.trials_of[id]:
            if one["id"] == trial_id:
                return one
        raise NotFound(f"cannot find trial {trial_id}")

    def kill_trial(self, id: str, trial_id: str) -> None:
        self._note("kill", id, trial_id)

    def trial_log(self, id: str, trial_id: str, name: str, *, offset: int, limit: int) -> LogPart:
        if (trial_id, name) not in self.logs:
            raise NotFound(f"trial {trial_id} has no {name}")
        data = self.logs[trial_id, name]
        start = max(len(data) + offset, 0) if offset < 0 else offset
        return LogPart(data=data[start : start + limit], offset=start, size=len(data))

    def experiment_log(self, id: str, name: str, *, offset: int, limit: int) -> LogPart:
        if name not in self.experiment_logs:
            raise NotFound(f"experiment {id} has no {name}")
        data = self.experiment_logs[name]
        start = max(len(data) + offset, 0) if offset < 0 else offset
        return LogPart(data=data[start : start + limit], offset=start, size=len(data))

    def _with_status(self, id: str, status: str | None) -> list[Json]:
        return [one for one in self.trials_of.get(id, []) if status in (None, one["status"])]

    def _note(self, *call: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(call)
