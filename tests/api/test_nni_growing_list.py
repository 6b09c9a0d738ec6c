"""Cached and newly read items together are the whole list, at every moment of an experiment's life."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nni_manager.api.nni import trials as nni_trials
from nni_manager.api.nni.trials import METRIC_ROWS, GrowingList, ListResponse, Rows, trial_rows
from nni_manager.domain.service import WaitCode
from nni_manager.store.connection import connect
from nni_manager.store.experiment import experiments, jobs, trials
from nni_manager.store.migrate import migrate
from nni_manager.store.nni import nni_answers
from tests.store.life import add, end, final, intermediate, report, start

pytestmark = pytest.mark.unit


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    migrate(tmp_path / "nni.sqlite", "experiment")
    connection = connect(tmp_path / "nni.sqlite")
    experiments.create(connection, id="exp1", config="{}", interpreter="/p", folder="/f", now_ms=0)
    yield connection
    connection.close()


class Life:
    """Trials that randomly start, report, are retried and end."""

    def __init__(self, connection: sqlite3.Connection, seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        #: Open trial → its attempt, and how many results it has reported.
        self._open: dict[str, tuple[int, int]] = {}
        self._made = 0

    def step(self) -> None:
        steps = [self._add] if not self._open else [self._add, self._report, self._report, self._report, self._end]
        self._random.choice([*steps, self._retry] if self._open else steps)()

    def _add(self) -> None:
        id_ = f"t{self._made:04}"
        add(self._connection, id_, self._made)
        self._made += 1
        if self._random.random() < 0.8:
            start(self._connection, id_)
            self._open[id_] = (1, 0)
        else:
            end(self._connection, id_, "FAILED", "SUBMIT_REJECTED")

    def _one(self) -> str:
        return self._random.choice(list(self._open))

    def _job(self, id_: str) -> str:
        attempt = self._open[id_][0]
        return f"nni_exp_exp1_trial_{id_}" + (f"-{attempt}" if attempt > 1 else "")

    def _report(self) -> None:
        id_ = self._one()
        attempt, count = self._open[id_]
        value = self._random.choice((intermediate, final))(count)
        report(self._connection, self._job(id_), value, start=10 * count)
        self._open[id_] = (attempt, count + 1)

    def _retry(self) -> None:
        id_ = self._one()
        attempt = self._open[id_][0]
        jobs.close(self._connection, id_, attempt, jobs.PLATFORM)
        trials.next_attempt(self._connection, id_, WaitCode.RETRY, "again")
        start(self._connection, id_, attempt + 1)
        self._open[id_] = (attempt + 1, 0)

    def _end(self) -> None:
        id_ = self._one()
        attempt, _ = self._open.pop(id_)
        end(self._connection, id_, self._random.choice(("SUCCEEDED", "FAILED")), attempt=attempt)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [trial_rows("/f"), METRIC_ROWS], ids=["trials", "metrics"])
def test_cached_list_is_always_complete(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, rows: Rows, seed: int
) -> None:
    monkeypatch.setattr(nni_trials, "_MOST_PIECES", 3)
    life, growing = Life(connection, seed), GrowingList(rows)
    for number in range(120):
        life.step()
        if number % (seed + 1) == 0:  # several changes between two reads
            whole = rows.items(connection, start=0, end=nni_answers.END)
            assert b",".join(growing.read(connection)) == whole
    assert json.loads(b"[" + whole + b"]")


def test_cached_items_are_not_assembled_again(connection: sqlite3.Connection) -> None:
    asked: list[tuple[int, int]] = []

    rows = trial_rows("/f")

    def watched(connection: sqlite3.Connection, *, start: int, end: int) -> bytes:
        asked.append((start, end))
        return rows.items(connection, start=start, end=end)

    growing = GrowingList(replace(rows, items=watched))
    for number in range(3):
        add(connection, f"t{number:04}", number)
        end(connection, f"t{number:04}")
        growing.read(connection)
    growing.read(connection)
    assert asked == [(0, 1), (1, nni_answers.END), (1, 2), (2, nni_answers.END), (2, 3)] + [(3, nni_answers.END)] * 2


def test_cache_is_bounded(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nni_trials, "MOST_KEPT", 1)
    growing = GrowingList(trial_rows("/f"))
    for number in range(3):
        add(connection, f"t{number:04}", number)
        end(connection, f"t{number:04}")
        pieces = growing.read(connection)
    assert len(json.loads(b"[" + b",".join(pieces) + b"]")) == 3
    assert growing._kept.size <= 1, "also of a list that is too long when it is first asked for"


@pytest.mark.parametrize(("pieces", "whole"), [((), []), ((b"1",), [1]), ((b"1", b"2,3"), [1, 2, 3])])
async def test_the_pieces_are_sent_as_one_list(pieces: tuple[bytes, ...], whole: list[int]) -> None:
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await ListResponse(pieces)({"type": "http"}, None, send)  # type: ignore[arg-type]
    body = b"".join(message.get("body", b"") for message in sent)  # type: ignore[misc]
    assert json.loads(body) == whole
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(body)).encode()  # type: ignore[call-overload]
    assert [message.get("more_body", True) for message in sent] == [True] * (len(sent) - 1) + [False]
