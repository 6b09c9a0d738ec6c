"""`ended_as`: how an experiment ended that is STOPPED."""

from __future__ import annotations

import sqlite3

import pytest

from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store.experiment import experiments
from nni_manager.store.index import list_summary

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (("DONE", "STOPPING", "STOPPED"), "DONE"),
        (("DONE", "STOPPED"), "DONE"),
        (("DONE", "STOPPING", "STOPPING", "STOPPED"), "DONE"),
        (("STOPPING", "STOPPED"), ""),
        (("NO_MORE_TRIAL", "STOPPING", "STOPPED"), ""),
        (("ERROR", "STOPPING", "STOPPED"), ""),
        (("DONE", "STOPPING", "STOPPED", "RUNNING"), ""),
        (("DONE", "STOPPED", "RUNNING", "STOPPING", "STOPPED"), ""),
        (("DONE",), ""),
    ],
)
def test_stop_after_the_end_is_noted(connection: sqlite3.Connection, steps: tuple[str, ...], expected: str) -> None:
    for now_ms, status in enumerate(steps):
        experiments.set_status(connection, ExperimentStatus(status), now_ms)
    assert experiments.load(connection).ended_as == expected
    summary = list_summary.parse(list_summary.text_of(connection))
    assert summary is not None and summary.ended_as == expected
