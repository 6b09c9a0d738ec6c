"""Databases of experiments with trials of every kind, without a daemon."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nni_manager.analysis.worker import KeptExperiments, respond
from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.metrics import Metric, MetricType, default_number
from nni_manager.domain.reason import Reason
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial import cause_line, failure_key
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.connection import connect
from nni_manager.store.experiment import jobs, metrics, reports, trials
from nni_manager.store.migrate import migrate
from tests.store.life import add_with

SPACE = {
    "rate": {"_type": "loguniform", "_value": [1e-5, 1]},
    "units": {"_type": "randint", "_value": [1, 10]},
    "kind": {"_type": "choice", "_value": ["a", "b", None]},
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "conv", "size": {"_type": "choice", "_value": [3, 5]}},
            {"_name": "dense", "width": {"_type": "quniform", "_value": [8, 64, 8]}},
        ],
    },
}
_START_MS = 1_790_000_000_000


@dataclass
class Filled:
    """An experiment that trials are added to, and asked about as the child process is."""

    path: Path
    connection: sqlite3.Connection
    kept: KeptExperiments
    count: int = 0
    revision: int = 0

    def add(
        self,
        parameters: Any = None,
        *,
        final: Any = None,
        curve: Sequence[Any] = (),
        status: TrialStatus = TrialStatus.SUCCEEDED,
        stderr: str = "",
        exit_code: int = 1,
        ms: int = 1000,
        place: str = "",
    ) -> int:
        """Adds a trial that took `ms` and began after the one before it; returns its number."""
        number = self.count
        self.count += 1
        began = _START_MS + 10_000 * number
        id = f"t{number:04d}"
        values = {"rate": 0.1} if parameters is None else parameters
        given = Parameters(parameter_id=number, source=ParameterSource.ALGORITHM, values=values)
        add_with(self.connection, id, given, began)
        if status is not TrialStatus.WAITING:
            self._run(id, began, curve, final, place)
        if status not in (TrialStatus.WAITING, TrialStatus.RUNNING):
            self._end(id, status, began + ms, stderr, exit_code)
        self.connection.commit()
        self.revision += 1
        return number

    def end(self, number: int, status: TrialStatus) -> None:
        """Ends a running trial, five seconds after it began."""
        self._end(f"t{number:04d}", status, _START_MS + 10_000 * number + 5000, "", 0)
        self.revision += 1

    def asked(self, question: str, query: str) -> dict[str, Any]:
        """The answer to a question; raises AssertionError with the sentence of a refusal."""
        header, text = self.respond(question, query)
        assert "refused" not in header, text.decode()
        answer: dict[str, Any] = json.loads(text, parse_constant=_refuse)
        return answer

    def respond(self, question: str, query: str = "") -> tuple[dict[str, Any], bytes]:
        request = {
            "id": 1,
            "question": question,
            "query": query,
            "path": str(self.path),
            "revision": str(self.revision),
        }
        return respond(self.kept, request)

    def _run(self, id: str, began: int, curve: Sequence[Any], final: Any, place: str) -> None:
        name = job_name("exp1", id, 1)
        jobs.intend(self.connection, Attempt(id, 1, name, service="local", intended_ms=began))
        jobs.set_handle(self.connection, JobHandle(platform="local", version=1, job_name=name, data=id))
        running = Observation(state=JobState.RUNNING, started_ms=began, place=place)
        reports.set_report(self.connection, name, running, began)
        trials.set_running(self.connection, id, began)
        told = [(MetricType.PERIODICAL, value) for value in curve]
        told += [(MetricType.FINAL, final)] if final is not None else []
        for line, (type, value) in enumerate(told):
            metric = Metric(type=type, data=json.dumps(value), value=default_number(value), number=0)
            part = metrics.OutboxPart(
                job_name=name,
                outbox="outbox/main.jsonl",
                start=10 * line,
                end=10 * line + 10,
                lines=1,
                metrics=(metric,),
            )
            metrics.store(self.connection, part, began + 100 * (line + 1))

    def _end(self, id: str, status: TrialStatus, ended: int, stderr: str, exit_code: int) -> None:
        failed = status is TrialStatus.FAILED
        reason = Reason.USER_CODE if failed else Reason.NONE
        report = Observation(
            state=JobState.FAILED if failed else JobState.SUCCEEDED,
            exit_code=exit_code if failed else 0,
            stderr_tail=stderr,
            ended_ms=ended,
        )
        reports.set_report(self.connection, job_name("exp1", id, 1), report, ended)
        jobs.close(self.connection, id, 1)
        trials.finish(
            self.connection,
            id,
            status=status,
            reason=reason,
            message=f"exit code {exit_code}" if failed else "",
            ended_ms=ended,
            last_words=cause_line(stderr),
            failure_key=failure_key(status, reason, report, id),
        )


@contextmanager
def filled(folder: Path, space: Any = SPACE, mode: str = "minimize") -> Iterator[Filled]:
    """An experiment without trials."""
    path = folder / "nni.sqlite"
    migrate(path, "experiment")
    config: Mapping[str, Any] = {"searchSpace": space, "tuner": {"name": "TPE", "classArgs": {"optimize_mode": mode}}}
    with closing(connect(path)) as connection:
        connection.execute(
            "INSERT INTO experiment (id, status, config, interpreter, folder, created_ms, counted_ms)"
            " VALUES ('exp1', 'RUNNING', ?, 'python3', ?, 0, 0)",
            (json.dumps(config), str(folder)),
        )
        try:
            yield Filled(path, connection, KeptExperiments())
        finally:
            _let_importances_end()


def with_goals(experiment: Filled, objectives: dict[str, str], constraints: dict[str, str] | None = None) -> None:
    """Gives an experiment several objectives, and no search space."""
    config = {"objectives": objectives, "constraints": constraints or {}, "searchSpace": {}}
    experiment.connection.execute("UPDATE experiment SET config = ?", [json.dumps(config)])
    experiment.connection.commit()


def _let_importances_end() -> None:
    """They are computed one after the other: those of one test would hold up those of the next."""
    for thread in threading.enumerate():
        if thread.name == "importance":
            thread.join()


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")
