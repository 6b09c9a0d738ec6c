"""Which checkpoints nothing needs any more."""

from __future__ import annotations

import sqlite3

import pytest

from nni_manager.domain.ids import job_name
from nni_manager.domain.metrics import default_number
from nni_manager.store.experiment import jobs, trials
from tests.store.life import add, end, report, start

pytestmark = pytest.mark.unit


def _finish(connection: sqlite3.Connection, id: str, value: float | None, *, is_forgotten: bool = True) -> None:
    add(connection, id)
    name = start(connection, id)
    if value is not None:
        report(connection, name, ("final", repr(value), default_number(value)))
    end(connection, id)
    trials.note_checkpoint(connection, id)
    if is_forgotten:
        jobs.set_forgotten(connection, name)


def _needless(connection: sqlite3.Connection, kept: int, *, maximize: bool = True) -> list[str]:
    return sorted(one.trial_id for one in trials.needless_checkpoints(connection, kept, maximize=maximize))


def test_those_of_the_best_stay(connection: sqlite3.Connection) -> None:
    for id_, value in (("aaaaa", 1.0), ("bbbbb", 3.0), ("ccccc", None), ("ddddd", 2.0), ("eeeee", float("inf"))):
        _finish(connection, id_, value)
    assert _needless(connection, 0) == ["aaaaa", "bbbbb", "ccccc", "ddddd", "eeeee"]
    assert _needless(connection, 2) == ["aaaaa", "ccccc", "eeeee"]
    assert _needless(connection, 2, maximize=False) == ["bbbbb", "ccccc", "eeeee"]


def test_checkpoint_in_use_is_needed(connection: sqlite3.Connection) -> None:
    _finish(connection, "aaaaa", 1.0, is_forgotten=False)
    _finish(connection, "bbbbb", 1.0)
    add(connection, "ccccc")
    connection.execute("UPDATE trials SET continues = 'bbbbb' WHERE id = 'ccccc'")
    assert _needless(connection, 0) == []
    jobs.set_forgotten(connection, job_name("exp1", "aaaaa", 1))
    start(connection, "ccccc")
    end(connection, "ccccc")
    assert _needless(connection, 0) == ["aaaaa", "bbbbb"]


def test_blocked_checkpoints_do_not_hide_others(
    connection: sqlite3.Connection,
) -> None:
    """However many these are."""
    ids = [f"t{number:04}" for number in range(130)]
    for id_ in ids:
        _finish(connection, id_, 1.0)
    connection.execute("UPDATE attempts SET service = 'other' WHERE trial_id < 't0065'")
    found = trials.needless_checkpoints(connection, 0, maximize=True, at_work=ids[65:129], away=["other"])
    assert [one.trial_id for one in found] == ["t0129"]


def test_removed_checkpoint_is_not_listed_again(connection: sqlite3.Connection) -> None:
    _finish(connection, "aaaaa", 1.0)
    name = start(connection, "aaaaa", attempt=2)
    jobs.close(connection, "aaaaa", 2)
    jobs.set_forgotten(connection, name)
    (found,) = trials.needless_checkpoints(connection, 0, maximize=True)
    assert [(service, handle.job_name) for service, handle in found.jobs] == [
        ("local", job_name("exp1", "aaaaa", number)) for number in (1, 2)
    ]
    trials.set_checkpoints_removed(connection, ["aaaaa"])
    assert _needless(connection, 0) == []
