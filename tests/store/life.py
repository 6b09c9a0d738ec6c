"""What happens in an experiment, one short call each; times are milliseconds."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import Any

from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.ids import job_name
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.metrics import Metric, MetricType, default_number
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.experiment import jobs, metrics, reports, trials
from nni_manager.store.experiment.metrics import OutboxPart, Receipt


def add(
    connection: sqlite3.Connection, id: str, parameter_id: int | None = 0, values: object = None, at: int = 0
) -> int:
    source = ParameterSource.CUSTOMIZED if parameter_id is None else ParameterSource.ALGORITHM
    return add_with(connection, id, Parameters(parameter_id=parameter_id, source=source, values=values or {"x": 1}), at)


def add_with(
    connection: sqlite3.Connection, id: str, parameters: Parameters, at: int = 0, sentence: str = "waits"
) -> int:
    return trials.add(
        connection,
        id=id,
        parameter_id=parameters.parameter_id,
        record=parameters.record(),
        wait_code=WaitCode.CONCURRENCY,
        wait_sentence=sentence,
        now_ms=at,
    )


def start(connection: sqlite3.Connection, id: str, attempt: int = 1, at: int = 0, experiment: str = "exp1") -> str:
    """Submitted, accepted, running; answers the job's name."""
    name = job_name(experiment, id, attempt)
    jobs.intend(connection, Attempt(id, attempt, name, service="local", intended_ms=at))
    jobs.set_handle(connection, JobHandle(platform="local", version=1, job_name=name, data=id))
    reports.set_report(connection, name, Observation(state=JobState.RUNNING, started_ms=at), at)
    trials.set_running(connection, id, at)
    return name


def end(
    connection: sqlite3.Connection,
    id: str,
    status: str = "SUCCEEDED",
    reason: str = "",
    message: str = "",
    attempt: int = 1,
    at: int = 0,
) -> None:
    jobs.close(connection, id, attempt)
    trials.finish(connection, id, status=TrialStatus(status), reason=Reason(reason), message=message, ended_ms=at)


def report(
    connection: sqlite3.Connection,
    job: str,
    *values: tuple[str, str, object],
    start: int = 0,
    end: int | None = None,
    outbox: str = "outbox/main.jsonl",
    at: int = 0,
    most: int = 0,
) -> Receipt:
    """`values`: (``intermediate`` or ``final``, JSON text, value), a line of ten bytes each."""
    found = tuple(_metric(number, *value) for number, value in enumerate(values))
    end = start + 10 * len(values) if end is None else end
    chunk = OutboxPart(job_name=job, outbox=outbox, start=start, end=end, lines=len(values), metrics=found)
    chunk = replace(chunk, most_bytes=most)
    return metrics.store(connection, chunk, at)


def intermediate(value: object) -> tuple[str, str, object]:
    return "intermediate", json.dumps(value), value


def final(value: float) -> tuple[str, str, object]:
    return "final", str(value), value


def one(connection: sqlite3.Connection, query: str, *values: object) -> Any:
    """The only row's only value, or the row."""
    row = connection.execute(query, values).fetchone()
    return row[0] if row is not None and len(row) == 1 else row


def _metric(number: int, kind: str, data: str, value: object) -> Metric:
    type_ = MetricType.FINAL if kind == "final" else MetricType.PERIODICAL
    return Metric(type=type_, data=data, value=default_number(value), number=number)


def attempt(connection: sqlite3.Connection) -> Attempt:
    """The job of the only open trial."""
    (trial,) = trials.load_open(connection)
    assert trial.job is not None
    return trial.job
