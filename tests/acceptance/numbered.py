"""Experiments of `trials/numbered.py` under real trial runners: compare the trials' notes with the stored results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.live_daemon import PYTHON, Daemon, picked
from tests.waiting import until

Json = dict[str, Any]

#: Environment of the creating user: jobs use the first `python3` on its PATH.
ENVIRONMENT = {"PATH": os.pathsep.join((str(Path(PYTHON).parent), os.environ["PATH"]))}
LISTENING = ("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")


class Numbered:
    """One experiment. `platform`: fields of its section; `fields`: of its config; `environment`: of its creator."""

    def __init__(
        self,
        daemon: Daemon,
        code: Path,
        *,
        trials: int,
        steps: int = 5,
        pause_s: float = 0.02,
        platform: Json | None = None,
        environment: dict[str, str] = ENVIRONMENT,
        **fields: Any,
    ) -> None:
        self.daemon = daemon
        self.trials = trials
        self.steps = steps
        self.notes = code.parent / "notes"
        self.notes.mkdir()
        service = {"platform": "scripted", "launch": "process", "nniManagerIp": "127.0.0.1", **(platform or {})}
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": f"python3 numbered.py {self.notes} {steps} {pause_s}",
            "trialCodeDirectory": ".",
            "trialConcurrency": 8,
            "maxTrialNumber": trials,
            "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
            "trainingService": service,
        }
        self.id = daemon.create({**config, **fields}, code, environment)

    def wait(self, timeout_s: float) -> None:
        self.daemon.wait(self.id, "DONE", timeout_s=timeout_s)

    def noted(self) -> dict[str, list[Json]]:
        """By job: notes of its trial, in order."""
        return {path.name: [json.loads(line) for line in _lines(path)] for path in self.notes.iterdir()}

    def ended(self) -> int:
        """Number of trials whose command exited on its own."""
        return sum(entries[-1:] != [] and entries[-1].get("event") == "ended" for entries in self.noted().values())

    def results(self, job: str) -> list[Any]:
        """Values noted by one job."""
        return [entry["value"] for entry in self.noted()[job] if "value" in entry]

    def stored(self) -> dict[str, list[Any]]:
        """By job: values in the order of the store."""
        jobs = {(one["trialId"], one["number"]): one["jobName"] for one in self.attempts()}
        found: dict[str, list[Any]] = {job: [] for job in jobs.values()}
        for result in self.daemon.results(self.id):
            found[jobs[result["trialId"], result["attempt"]]].append(json.loads(result["result"]))
        return found

    def ends(self) -> dict[str, tuple[str, str | None, int | None, str | None]]:
        """By job: status and reason of its trial, the exit code that its runner reported, and the channel."""
        attempts = self.attempts()  # read first: an attempt that starts later may belong to a new trial
        trials = {trial["id"]: trial for trial in self.shown()}
        return {one["jobName"]: (*_end(trials[one["trialId"]]), *_exit(one)) for one in attempts}

    def shown(self) -> list[Json]:
        """Trials as the API shows them."""
        return self.daemon.trials(self.id)

    def attempts(self) -> list[Json]:
        return self.daemon.attempts(self.id)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.daemon.rows(self.id, query)

    def log(self) -> str:
        return (self.daemon.data / self.id / "log" / "nnimanager.log").read_text()

    def check(self, channel: str) -> None:
        """Check that every trial ran once to its end, and that exactly its results are stored, once and in order."""
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
            job: (("SUCCEEDED", None, 0) if code == 0 else ("FAILED", "USER_CODE", code)) + (channel,)
            for job, code in codes.items()
        }
        assert sorted(codes.values()) == [0] * (self.trials - self.trials // 4) + [3] * (self.trials // 4)
        finals = {trial["id"]: json.loads(trial["finalResult"]) for trial in self.shown()}
        assert {job: finals[trial] for trial, job in picked(self.attempts(), "trialId", "jobName")} == {
            job: noted[job][0]["x"] for job in noted
        }

    def _printed(self) -> dict[str, list[str]]:
        """By job: the log of its standard output."""
        folder = self.daemon.data / self.id / "trials"
        paths = {job: folder / trial / "stdout" for trial, job in picked(self.attempts(), "trialId", "jobName")}
        return {job: path.read_text().splitlines() for job, path in paths.items() if path.exists()}


def _end(trial: Json) -> tuple[str, str | None]:
    return trial["status"], trial["reason"]


def _exit(attempt: Json) -> tuple[int | None, str | None]:
    """The exit code that its runner reported, and the channel."""
    return (attempt["runnerExit"] or {}).get("exitCode"), attempt["channel"]


def _lines(path: Path) -> list[str]:
    """Complete lines."""
    return path.read_text().rpartition("\n")[0].splitlines()
