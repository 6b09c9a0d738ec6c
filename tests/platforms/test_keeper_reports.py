"""Start and end of a job by its keeper's report: durations of a monotonic clock."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain import clock
from nni_manager.domain.attempt import Observation
from nni_manager.machines.keeper import job_events
from nni_manager.machines.keeper.job_events import job_report
from trial_runner import protocol

pytestmark = pytest.mark.unit

YEAR_MS = 365 * 24 * 3_600_000
RUNNING = {"state": protocol.RUNNING, "started_ms": 7 * YEAR_MS, "started_ago_ms": 90_000}
ENDED = {"state": protocol.ENDED, "exit_code": 0, "started_ago_ms": 90_000, "ended_ago_ms": 30_000}


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of the monotonic clock, to be changed."""
    shown = [500_000]
    monkeypatch.setattr(job_events, "steady_ms", lambda: shown[0])
    return shown


def times(report: Observation) -> tuple[int | None, int | None]:
    return report.started_ms, report.ended_ms


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (RUNNING, (910_000, None)),
        (ENDED, (910_000, 970_000)),
        ({"state": protocol.LOST}, (None, None)),
    ],
)
def test_times_are_relative_to_now_with_any_machine_clock(
    job: dict[str, Any], expected: tuple[int | None, int | None]
) -> None:
    assert times(job_report(job).dated(500_000)) == expected


def test_a_lost_job_has_a_sentence() -> None:
    told = {"state": protocol.LOST, "message": "its machine restarted"}
    assert job_report(told).message == "its machine restarted"
    assert job_report(ENDED).message == ""


def test_kept_report_follows_clock_change(steady: list[int]) -> None:
    report = job_report(RUNNING)
    steady[0] += 10_000
    assert times(report.dated(1_010_000 + YEAR_MS - steady[0])) == (910_000 + YEAR_MS, None)
    assert times(report.dated(1_010_000 - YEAR_MS - steady[0])) == (910_000 - YEAR_MS, None)


def test_reported_times_of_others_are_unchanged() -> None:
    report = Observation(state=job_report(RUNNING).state, started_ms=5, ended_ms=9)
    assert report.dated(1_000_000 - clock.steady_ms()) is report
