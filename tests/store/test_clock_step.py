"""What moves with the clock when it is set, and what does not."""

import sqlite3

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.domain.job import JobState
from nni_manager.store.experiment import experiments, reports, trials
from tests.store.life import add, end, start

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_clock_step_shifts_only_open_trials(connection: sqlite3.Connection, step_ms: int) -> None:
    add(connection, "aaaaa", at=2 * HOUR_MS)
    add(connection, "bbbbb", at=2 * HOUR_MS)
    add(connection, "ccccc", at=2 * HOUR_MS)
    for id_ in ("aaaaa", "bbbbb"):
        start(connection, id_, at=3 * HOUR_MS)
    end(connection, "bbbbb", at=4 * HOUR_MS)
    over = _moments(connection, "bbbbb")
    open_ = _moments(connection, "aaaaa")
    experiments.shift_times(connection, step_ms, 5 * HOUR_MS + step_ms)
    assert _moments(connection, "bbbbb") == over
    assert _moments(connection, "aaaaa") == tuple(value and value + step_ms for value in open_)
    assert _moments(connection, "ccccc") == (2 * HOUR_MS + step_ms, None, None, None)


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_clock_step_does_not_count_as_active_time(connection: sqlite3.Connection, step_ms: int) -> None:
    experiments.count_time(connection, 5 * HOUR_MS)
    before = experiments.load(connection).exec_ms
    now_ms = 5 * HOUR_MS + 100 + step_ms
    experiments.shift_times(connection, step_ms, now_ms)
    experiments.count_time(connection, now_ms)
    assert experiments.load(connection).exec_ms == before + 100


def test_time_counted_by_the_new_clock_is_capped(connection: sqlite3.Connection) -> None:
    experiments.count_time(connection, 2 * HOUR_MS)
    experiments.shift_times(connection, HOUR_MS, 2 * HOUR_MS)
    assert experiments.load(connection).counted_ms == 2 * HOUR_MS


def test_unreachable_since_is_shifted(connection: sqlite3.Connection) -> None:
    """Else a step would use up the time for which its machine may be away."""
    add(connection, "aaaaa", at=2 * HOUR_MS)
    job = start(connection, "aaaaa", at=3 * HOUR_MS)
    away = Observation(state=JobState.UNKNOWN, unreachable="the machine is away")
    reports.set_report(connection, job, away, 4 * HOUR_MS)
    experiments.shift_times(connection, HOUR_MS, 6 * HOUR_MS)
    (trial,) = trials.load_open(connection)
    assert trial.job is not None and trial.job.unreachable_ms == 5 * HOUR_MS


def test_end_is_never_stored_before_the_start(connection: sqlite3.Connection) -> None:
    """The clock was set back while no daemon ran."""
    add(connection, "aaaaa", at=5 * HOUR_MS)
    job = start(connection, "aaaaa", at=5 * HOUR_MS)
    reports.set_report(connection, job, Observation(state=JobState.SUCCEEDED, exit_code=0, ended_ms=HOUR_MS), HOUR_MS)
    end(connection, "aaaaa", at=HOUR_MS)
    for table in ("trials", "attempts"):
        assert connection.execute(f"SELECT started_ms, ended_ms FROM {table}").fetchone() == (5 * HOUR_MS, 5 * HOUR_MS)
    made_ms = experiments.load(connection).created_ms
    experiments.set_status(connection, ExperimentStatus.DONE, made_ms - HOUR_MS)
    assert experiments.load(connection).ended_ms == made_ms


def _moments(connection: sqlite3.Connection, id_: str) -> tuple[int | None, ...]:
    row: tuple[int | None, ...] = connection.execute(
        "SELECT t.created_ms, t.started_ms, a.intended_ms, a.started_ms FROM trials t"
        " LEFT JOIN attempts a ON a.trial_id = t.id WHERE t.id = ?",
        (id_,),
    ).fetchone()
    return row
