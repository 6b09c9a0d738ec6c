"""Experiments of `trials/numbered.py` under real trial runners: what trials wrote down, against what was stored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.acceptance.cluster import until
from tests.live_daemon import PYTHON, Daemon

Json = dict[str, Any]

#: Of whoever creates the experiment: jobs start with the `python3` that stands first here.
ENVIRONMENT = {"PATH": os.pathsep.join((str(Path(PYTHON).parent), os.environ["PATH"]))}
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")


class Numbered:
    """One experiment. `platform`: fields of its section; `fields`: of the config; `environment`: of who creates it."""

    def __init__(
        self, daemon: Daemon, code: Path, *, trials: int, steps: int = 5, pause_s: float = 0.02,
        platform: Json | None = None, environment: dict[str, str] = ENVIRONMENT, **fields: Any,
    ) -> None:  # fmt: skip
        self.daemon = daemon
        self.trials = trials
        self.steps = steps
        self.notes = code.parent / "notes"
        self.notes.mkdir()
        service = {"platform": "scripted", "launch": "process", "nniManagerIp": "127.0.0.1", **(platform or {})}
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": f"python3 numbered.py {self.notes} {steps} {pause_s}", "trialCodeDirectory": ".",
            "trialConcurrency": 8, "maxTrialNumber": trials, "tuner": {"name": "Random"}, "trainingService": service,
        }  # fmt: skip
        self.id = daemon.create({**config, **fields}, code, environment)

    def wait(self, timeout_s: float) -> None:
        self.daemon.wait(self.id, "DONE", timeout_s=timeout_s)

    def noted(self) -> dict[str, list[Json]]:
        """By job: what its trial wrote down, in order."""
        return {path.name: [json.loads(line) for line in _lines(path)] for path in self.notes.iterdir()}

    def ended(self) -> int:
        """Trials whose command came to its own end."""
        return sum(entries[-1:] != [] and entries[-1].get("event") == "ended" for entries in self.noted().values())

    def results(self, job: str) -> list[Any]:
        """Values noted by one job."""
        return [entry["value"] for entry in self.noted()[job] if "value" in entry]

    def stored(self) -> dict[str, list[Any]]:
        """By job: values in the order of the store."""
        found: dict[str, list[Any]] = {job: [] for (job,) in self.rows("SELECT job_name FROM attempts")}
        query = (
            "SELECT job_name, data FROM metrics m JOIN attempts a ON (a.trial_id, a.number) = (m.trial_id, m.attempt)"
        )
        for job, data in self.rows(f"{query} ORDER BY m.id"):
            found[job].append(json.loads(data))
        return found

    def ends(self) -> dict[str, tuple[str, str, int | None, str]]:
        """By job: status and reason of its trial, the command's exit code as its runner said, the channel."""
        query = (
            "SELECT job_name, status, t.reason, json_extract(runner_exit, '$.exitCode'), channel FROM attempts a"
            " JOIN trials t ON t.id = a.trial_id"
        )
        return {
            job: (status, reason, exit_code, channel) for job, status, reason, exit_code, channel in self.rows(query)
        }

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.daemon.rows(self.id, query)

    def log(self) -> str:
        return (self.daemon.data / self.id / "log" / "nnimanager.log").read_text()

    def check(self, channel: str) -> None:
        """Every trial ran once and to its own end; all it wrote is stored, once, in order; nothing else is."""
        noted = self.noted()
        assert len(noted) == self.trials
        for job, entries in noted.items():
            started, *results, ended = entries
            assert (started["event"], ended["event"]) == ("started", "ended"), f"{job} ran twice, or not to its end"
            assert [entry["value"] for entry in results] == [*range(self.steps), started["x"]]
        assert self.stored() == {job: self.results(job) for job in noted}
        printed = {job: [f"{e['type']} {e['value']}" for e in noted[job][1:-1]] for job in noted}
        until(lambda: self._printed() == printed)  # logs come after the end
        codes = {job: entries[-1]["exit_code"] for job, entries in noted.items()}
        assert self.ends() == {
            job: (("SUCCEEDED", "", 0) if code == 0 else ("FAILED", "USER_CODE", code)) + (channel,)
            for job, code in codes.items()
        }
        assert sorted(codes.values()) == [0] * (self.trials - self.trials // 4) + [3] * (self.trials // 4)
        finals = self.rows("SELECT job_name, final_data FROM trials t JOIN attempts a ON a.trial_id = t.id")
        assert {job: json.loads(data) for job, data in finals} == {job: noted[job][0]["x"] for job in noted}

    def _printed(self) -> dict[str, list[str]]:
        """By job: the log of its standard output."""
        folder = self.daemon.data / self.id / "trials"
        trials = self.rows("SELECT job_name, trial_id FROM attempts")
        paths = {job: folder / trial / "stdout" for job, trial in trials}
        return {job: path.read_text().splitlines() for job, path in paths.items() if path.exists()}


def _lines(path: Path) -> list[str]:
    """Complete ones."""
    return path.read_text().rpartition("\n")[0].splitlines()
