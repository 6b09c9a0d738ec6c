"""Code states: numbered by content, each with the time from which it was there."""

from __future__ import annotations

import sqlite3

import pytest

from nni_manager.store.experiment import code_states, trial_warnings
from nni_manager.store.experiment.code_states import MOST_STATES, CodeFile
from tests.store.life import add, end, one, start

pytestmark = pytest.mark.unit


def files(**digests: str) -> dict[str, CodeFile]:
    return {f"{name}.py": CodeFile(1, 2, digest) for name, digest in digests.items()}


def state_of(connection: sqlite3.Connection, trial: str) -> object:
    query = f"SELECT {code_states.OF_ATTEMPT} FROM attempts c WHERE c.trial_id = ?"
    return one(connection, query, trial)


def record(connection: sqlite3.Connection, since_ms: int, *changed: str, **digests: str) -> int:
    state = code_states.record(connection, "local", files(**digests), since_ms, changed)
    assert state is not None
    return state.number


def test_trial_has_the_state_of_its_start(connection: sqlite3.Connection) -> None:
    for number, at in enumerate((50, 150, 250)):
        add(connection, f"t000{number}", number)
        start(connection, f"t000{number}", at=at)
    assert record(connection, 60, go="a") == 1
    assert record(connection, 100, "go.py", go="b") == 2
    assert record(connection, 200, "go.py", go="a") == 1, "the content of state 1 again"
    assert [state_of(connection, trial) for trial in ("t0000", "t0001", "t0002")] == [1, 2, 1]
    latest = code_states.latest(connection, "local")
    assert latest is not None and (latest.number, latest.files) == (1, files(go="a"))


def test_trials_before_first_check_have_no_state(connection: sqlite3.Connection) -> None:
    add(connection, "t0000", 0)
    start(connection, "t0000", at=10)
    end(connection, "t0000", at=20)
    assert record(connection, 60, go="a") == 1
    assert state_of(connection, "t0000") is None


def test_trial_of_a_service_that_runs_copies_has_none(connection: sqlite3.Connection) -> None:
    add(connection, "t0000", 0)
    start(connection, "t0000", at=50)
    code_states.record(connection, "remote", files(go="a"), 0)
    assert state_of(connection, "t0000") is None


def test_later_files_keep_number_of_earlier_state(connection: sqlite3.Connection) -> None:
    assert record(connection, 0, go="a", util="u") == 1
    assert record(connection, 10, "go.py", go="b", util="u", new="n") == 2
    assert record(connection, 20, "go.py", go="a", util="u", new="n") == 1
    assert record(connection, 30, "util.py", go="a", util="", new="n") == 3
    assert record(connection, 40, "util.py", go="a", util="u", new="n") == 1


def test_change_is_a_warning_once_a_trial_ran_it(connection: sqlite3.Connection) -> None:
    record(connection, 0, go="a")
    record(connection, 100, "go.py", "b.py", "c.py", "d.py", go="b")
    assert code_states.set_first_trials(connection) and trial_warnings.load(connection) == ()
    add(connection, "t0000", 0)
    start(connection, "t0000", at=150)
    assert not code_states.set_first_trials(connection)
    (warning,) = trial_warnings.load(connection)
    assert warning.code == "CODE_CHANGED"
    assert "the code changed" in warning.message and "go.py, b.py, c.py and 1 more" in warning.message
    assert "trial t0000 (number 0) is the first to run the new code, state 2" in warning.message


def test_states_are_limited(connection: sqlite3.Connection) -> None:
    for number in range(MOST_STATES):
        assert record(connection, number, "go.py", go=str(number)) == number + 1
    assert code_states.record(connection, "local", files(go="more"), 1000, ["go.py"]) is None
    numbers = [row[0] for row in connection.execute("SELECT number FROM code_changes ORDER BY since_ms")]
    assert numbers[-2:] == [MOST_STATES, None], "later trials have no number"
    assert record(connection, 2000, "go.py", go="7") == 8
