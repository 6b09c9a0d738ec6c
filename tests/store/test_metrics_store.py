"""Results as rows: each line once, in order, and only from the attempt that counts."""

from __future__ import annotations

import math
import sqlite3

import pytest

from nni_manager.domain.service import WaitCode
from nni_manager.store.experiment import history, jobs, runners, trial_warnings, trials
from nni_manager.store.experiment.metrics import OutboxPart, Stored, store
from tests.store.life import add, end, final, intermediate, one, report, start

pytestmark = pytest.mark.unit


@pytest.fixture
def job(connection: sqlite3.Connection) -> str:
    add(connection, "aaaaa")
    return start(connection, "aaaaa")


def rows(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT number, type, sequence, data, value FROM metrics ORDER BY id").fetchall()


def test_lines_are_numbered_across_chunks(connection: sqlite3.Connection, job: str) -> None:
    first = report(connection, job, intermediate(1), intermediate(2), at=7)
    assert (first.stored, first.trial_id, first.has_intermediates) == (Stored.NEW, "aaaaa", True)
    second = report(connection, job, final(9), intermediate(3), start=20)
    assert second.stored is Stored.NEW
    assert rows(connection) == [
        (0, "PERIODICAL", 0, "1", 1.0),
        (1, "PERIODICAL", 1, "2", 2.0),
        (2, "FINAL", 0, "9", 9.0),
        (3, "PERIODICAL", 2, "3", 3.0),
    ]
    assert one(connection, "SELECT intermediates, last_value, final_value, final_data FROM trials") == (
        3,
        3.0,
        9.0,
        "9",
    )
    assert jobs.offsets(connection, job) == {"outbox/main.jsonl": 40}
    assert one(connection, "SELECT DISTINCT stored_ms FROM metrics WHERE number < 2") == 7


def test_repeated_chunk_is_not_stored_again(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, intermediate(1), intermediate(2))
    before = rows(connection)
    assert report(connection, job, intermediate(1), intermediate(2)).stored is Stored.REPEAT
    assert report(connection, job, intermediate(2), start=10).stored is Stored.REPEAT
    assert rows(connection) == before
    assert one(connection, "SELECT intermediates FROM trials") == 2


@pytest.mark.parametrize(("start_", "end_"), [(30, 40), (10, 40), (21, 31)])
def test_a_gap_or_an_overlap_is_asked_for_again(
    connection: sqlite3.Connection, job: str, start_: int, end_: int
) -> None:
    report(connection, job, intermediate(1), intermediate(2))
    assert report(connection, job, final(3), start=start_, end=end_).stored is Stored.GAP
    assert len(rows(connection)) == 2
    assert jobs.offsets(connection, job) == {"outbox/main.jsonl": 20}
    assert report(connection, job, final(3), start=20).stored is Stored.NEW


def test_a_gap_at_the_very_start(connection: sqlite3.Connection, job: str) -> None:
    assert report(connection, job, intermediate(1), start=10).stored is Stored.GAP
    assert report(connection, job, intermediate(1)).stored is Stored.NEW


def test_intermediates_beyond_the_limit_are_dropped(connection: sqlite3.Connection, job: str) -> None:
    most, other = 3 * 2**20, "outbox/7.jsonl"
    assert report(connection, job, intermediate(1), end=2 * 2**20, most=most).doubt == ""
    beyond = report(connection, job, intermediate(2), outbox=other, end=2 * 2**20, most=most)
    assert (beyond.stored, beyond.has_intermediates) == (Stored.NEW, False) and "maxResultSize (3 MB)" in beyond.doubt
    ended = report(connection, job, intermediate(3), final(9), start=2 * 2**20, outbox=other, most=most)
    assert (ended.stored, ended.doubt) == (Stored.NEW, "")  # it was said
    assert report(connection, job, final(10), start=2 * 2**20, most=most).stored is Stored.NEW
    assert [row[3] for row in rows(connection)] == ["1", "9"]
    assert one(connection, "SELECT final_value, further_finals FROM trials") == (9.0, 0)
    assert str(one(connection, "SELECT doubt FROM attempts")).count("were dropped") == 1


def test_final_result_beyond_limit_is_kept(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, intermediate(1), end=2**20, most=2**20)
    assert report(connection, job, final(9), start=2**20, most=2**20).doubt == ""
    assert one(connection, "SELECT doubt, final_value FROM trials, attempts") == ("", 9.0)


def test_broken_lines_count_but_store_nothing(connection: sqlite3.Connection, job: str) -> None:
    chunk = OutboxPart(job_name=job, outbox="outbox/main.jsonl", start=0, end=25, lines=3, metrics=())
    receipt = store(connection, chunk, 0)
    assert (receipt.stored, receipt.has_intermediates) == (Stored.NEW, False)
    report(connection, job, intermediate(1), start=25)
    assert [row[0] for row in rows(connection)] == [3]


def test_outboxes_of_one_attempt_are_separate(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, intermediate(1), outbox="outbox/main.jsonl")
    report(connection, job, intermediate(2), outbox="outbox/7.jsonl")
    report(connection, job, intermediate(3), outbox=".nni/metrics")
    assert [(number, sequence) for number, _, sequence, _, _ in rows(connection)] == [(0, 0), (0, 1), (0, 2)]
    assert jobs.offsets(connection, job) == {"outbox/main.jsonl": 10, "outbox/7.jsonl": 10, ".nni/metrics": 10}


def test_the_first_final_result_counts(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, final(1), final(2))
    report(connection, job, final(3), start=20)
    assert one(connection, "SELECT final_data, final_value FROM trials") == ("1", 1.0)
    assert len(rows(connection)) == 3


def further(connection: sqlite3.Connection) -> int:
    return int(one(connection, "SELECT further_finals FROM trials WHERE id = 'aaaaa'"))


def test_further_final_results_are_counted_over_outboxes(connection: sqlite3.Connection, job: str) -> None:
    assert not report(connection, job, final(1)).has_first_further_final and further(connection) == 0
    assert report(connection, job, final(2), intermediate(3), outbox="outbox/7.jsonl").has_first_further_final
    assert not report(connection, job, final(3), final(4), outbox=".nni/metrics").has_first_further_final
    assert further(connection) == 3
    assert [one.message for one in trial_warnings.load(connection)] == [
        "trial aaaaa: 3 further final results were ignored: report once, from rank 0; the first final result of a"
        " trial counts"
    ]


def test_repeated_chunk_adds_no_further_final_result(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, final(1), final(2))
    report(connection, job, final(1), final(2))
    assert further(connection) == 1


def test_final_result_of_restarted_container_is_not_further(connection: sqlite3.Connection, job: str) -> None:
    runners.register(connection, job, version="1", channel="push", container="a", outboxes={})
    report(connection, job, final(1))
    runners.register(connection, job, version="1", channel="push", container="b", outboxes={})
    report(connection, job, final(1))
    assert further(connection) == 0
    report(connection, job, final(1), start=10)
    assert further(connection) == 1


def test_next_attempt_begins_without_further_final_results(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, final(1), final(2))
    jobs.close(connection, "aaaaa", 1, "PLATFORM")
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    assert further(connection) == 0
    trials.revive_attempt(connection, "aaaaa", 1, "seen again")
    assert further(connection) == 1


def test_first_final_without_number_counts(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, ("final", '"text"', "text"), final(2))
    assert one(connection, "SELECT final_data, final_value FROM trials") == ('"text"', None)


def test_metrics_that_are_not_numbers(connection: sqlite3.Connection, job: str) -> None:
    report(
        connection,
        job,
        intermediate(5),
        ("intermediate", "NaN", math.nan),
        ("intermediate", '"text"', "text"),
        ("intermediate", "Infinity", math.inf),
        ("final", "NaN", math.nan),
    )
    assert [(data, value) for _, _, _, data, value in rows(connection)] == [
        ("5", 5.0),
        ("NaN", None),
        ('"text"', None),
        ("Infinity", math.inf),
        ("NaN", None),
    ]
    assert one(connection, "SELECT final_data, final_value, last_value FROM trials") == ("NaN", None, math.inf)


@pytest.mark.parametrize("name", ["nni_exp_exp1_trial_zzzzz", ""])
def test_results_of_unknown_jobs_are_fenced_off(connection: sqlite3.Connection, job: str, name: str) -> None:
    assert report(connection, name, final(1)).stored is Stored.FENCED
    assert rows(connection) == []


def test_results_of_a_decided_attempt_are_fenced_off(connection: sqlite3.Connection, job: str) -> None:
    end(connection, "aaaaa")
    assert report(connection, job, final(1)).stored is Stored.FENCED
    assert one(connection, "SELECT final_data FROM trials") is None


def test_the_next_attempt_starts_at_zero(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, intermediate(1), intermediate(2), final(3))
    jobs.close(connection, "aaaaa", 1, jobs.PLATFORM)
    trials.next_attempt(connection, "aaaaa", WaitCode.RETRY, "again")
    assert one(connection, "SELECT intermediates, last_value, final_data, final_value FROM trials") == (0, *[None] * 3)
    again = start(connection, "aaaaa", 2)
    assert report(connection, job, intermediate(8)).stored is Stored.FENCED
    assert report(connection, again, intermediate(4)).stored is Stored.NEW
    assert one(connection, "SELECT number, sequence FROM metrics WHERE attempt = 2") == (0, 0)
    assert history.intermediates(connection, "aaaaa")["values"] == [4]
    assert len(rows(connection)) == 4, "what the first attempt reported stays on record"


def stored(connection: sqlite3.Connection) -> list[str]:
    return [data for (data,) in connection.execute("SELECT data FROM metrics ORDER BY id")]


def test_replaced_outbox_has_new_lines_from_the_first_difference(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, intermediate(1), intermediate(2), intermediate(3), outbox="outbox/a")
    first = report(connection, job, intermediate(1), outbox="outbox/a/2")  # cut down, and written on
    assert (first.stored, stored(connection)) == (Stored.NEW, ["1", "2", "3"])
    assert "outbox/a became shorter or was replaced" in first.doubt
    second = report(connection, job, intermediate(2), intermediate(4), intermediate(3), outbox="outbox/a/2", start=10)
    assert (second.doubt, stored(connection)) == ("", ["1", "2", "3", "4", "3"])
    report(connection, job, intermediate(1), intermediate(2), intermediate(5), outbox="outbox/a/3")
    assert stored(connection) == ["1", "2", "3", "4", "3", "5"]
    report(connection, job, final(5), outbox="outbox/a/4")
    assert one(connection, "SELECT final_data FROM trials") == "5"
    assert "with >> in a shell" in str(one(connection, "SELECT doubt FROM attempts"))


def test_results_of_replaced_outbox_files_are_kept(connection: sqlite3.Connection, job: str) -> None:
    for number, value in enumerate([1, 2, 1, 1, 3], start=1):
        report(connection, job, intermediate(value), outbox="outbox/a" if number == 1 else f"outbox/a/{number}")
    assert stored(connection) == ["1", "2", "1", "3"], (
        "a repeated line in a replaced file cannot be told from the old one"
    )


def test_numeric_outbox_name(connection: sqlite3.Connection, job: str) -> None:
    found = report(connection, job, intermediate(1), outbox="outbox/7")
    assert (found.stored, found.doubt) == (Stored.NEW, "")
    assert report(connection, job, intermediate(1), outbox="outbox/folder/7").doubt == ""
    assert stored(connection) == ["1", "1"]


def test_numeric_outbox_name_with_any_number(connection: sqlite3.Connection, job: str) -> None:
    report(connection, job, intermediate(1), outbox="outbox/a")
    for name in ("outbox/999999999", "outbox/a/999999999"):
        assert report(connection, job, intermediate(1), outbox=name).doubt == ""
