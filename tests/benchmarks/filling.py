"""Add thousands of ended trials to a store: to ours through its functions, to NNI's with SQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from nni_manager.domain.attempt import Attempt, Observation
from nni_manager.domain.ids import attempt_directory, job_name, new_trial_ids
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.metrics import Metric, MetricType
from nni_manager.domain.reason import Reason
from nni_manager.domain.space.parameters import Parameters, ParameterSource
from nni_manager.domain.trial_status import TrialStatus
from nni_manager.store.connection import connect
from nni_manager.store.experiment import jobs, metrics, reports, trials
from tests.store.life import add_with
from trial_runner import protocol

#: Number of intermediate results of a trial, in addition to the final one.
INTERMEDIATES = 10
_TRIAL_MS = 1000


def fill(database: Path, experiment_id: str, count: int, began_ms: int) -> None:
    """Add ended trials to an experiment of ours that is not open in a daemon."""
    with closing(connect(database)) as connection:
        (first,) = connection.execute("SELECT next_parameter_id FROM experiment").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        for number, trial_id in enumerate(_ids(connection, "SELECT id FROM trials", count), first):
            _add(connection, database.parents[1], experiment_id, trial_id, number, began_ms + number)
        connection.execute("COMMIT")


def _add(connection: sqlite3.Connection, folder: Path, experiment_id: str, trial_id: str, number: int, ms: int) -> None:
    name = job_name(experiment_id, trial_id, 1)
    parameters = Parameters(parameter_id=number, source=ParameterSource.ALGORITHM, values={"x": _x(number)})
    add_with(connection, trial_id, parameters, ms)
    jobs.intend(connection, Attempt(trial_id, 1, name, service="local", intended_ms=ms))
    place = str(folder / "trials" / attempt_directory(trial_id, 1))
    jobs.set_handle(connection, JobHandle(platform="local", version=1, job_name=name, data=place))
    trials.set_running(connection, trial_id, ms)
    metrics.store(connection, _chunk(name, number), ms + _TRIAL_MS)
    report = Observation(state=JobState.SUCCEEDED, exit_code=0, started_ms=ms, ended_ms=ms + _TRIAL_MS)
    reports.set_report(connection, name, report, ms + _TRIAL_MS)
    jobs.close(connection, trial_id, 1)
    jobs.set_forgotten(connection, name)
    trials.finish(
        connection, trial_id, status=TrialStatus.SUCCEEDED, reason=Reason.NONE, message="", ended_ms=ms + _TRIAL_MS
    )


def _chunk(name: str, number: int) -> metrics.OutboxPart:
    values = _values(number)
    found = [
        Metric(type=MetricType.PERIODICAL, data=str(value), value=value, number=place)
        for place, value in enumerate(values)
    ]
    found.append(Metric(type=MetricType.FINAL, data=str(values[-1]), value=values[-1], number=len(values)))
    return metrics.OutboxPart(
        job_name=name, outbox=protocol.MAIN_OUTBOX, start=0, end=1000, lines=len(found), metrics=found
    )


def fill_nni(database: Path, count: int, began_ms: int) -> None:
    """The same trials for NNI, in an experiment without a running manager."""
    with closing(sqlite3.connect(database)) as connection, connection:
        (first,) = connection.execute("SELECT 1 + max(sequenceId) FROM TrialJobEvent").fetchone()
        (folder,) = connection.execute("SELECT logDir FROM ExperimentProfile LIMIT 1").fetchone()
        for number, id_ in enumerate(_ids(connection, "SELECT trialJobId FROM TrialJobEvent", count), first):
            _add_nni(connection, f"{folder}/environments/local-env/trials/{id_}", id_, number, began_ms + number)


def _add_nni(connection: sqlite3.Connection, path: str, id_: str, number: int, ms: int) -> None:
    record = {
        "parameter_id": number,
        "parameter_source": "algorithm",
        "parameters": {"x": _x(number)},
        "parameter_index": 0,
    }
    connection.executemany(
        "INSERT INTO TrialJobEvent VALUES (?, ?, ?, ?, ?, ?, NULL, 'local-env')",
        [
            (ms, id_, "RUNNING", json.dumps(record), path, number),
            (ms + _TRIAL_MS, id_, "SUCCEEDED", None, path, number),
        ],
    )
    values = _values(number)
    rows = [(ms, id_, str(number), "PERIODICAL", place, _twice(value)) for place, value in enumerate(values)]
    rows.append((ms + _TRIAL_MS, id_, str(number), "FINAL", 0, _twice(values[-1])))
    connection.executemany("INSERT INTO MetricData VALUES (?, ?, ?, ?, ?, ?)", rows)


def _ids(connection: sqlite3.Connection, taken: str, count: int) -> Iterator[str]:
    """Unused trial ids; `taken`: a query of the used ones."""
    used = {id_ for (id_,) in connection.execute(taken)}
    fresh: dict[str, None] = dict.fromkeys(islice(new_trial_ids(), count + count // 10))
    return islice((id_ for id_ in fresh if id_ not in used), count)


def _x(number: int) -> float:
    return number % 997 / 997


def _values(number: int) -> list[float]:
    return [_x(number) + place / 10 for place in range(INTERMEDIATES)]


def _twice(value: float) -> str:
    return json.dumps(json.dumps(value))
