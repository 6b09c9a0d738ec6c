"""The keeper killed three times: its jobs go on, the next keeper takes them over, nobody is left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.acceptance import witness
from tests.live_daemon import Daemon, assert_gone

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

TRIALS = 60


def test_three_keepers_lose_no_job(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    notes, tuner_notes = tmp_path / "witness.jsonl", tmp_path / "hosts"
    tuner_notes.mkdir()
    config = witness.config(trials=TRIALS, steps=10, pause_s=0.1, tuner=witness.noting_tuner(tuner_notes))
    id_ = daemon.create(config, code, {"WITNESS": str(notes)})
    keeper = daemon.keeper_pid()
    for _ in range(3):
        _wait_for_results(daemon, id_)
        daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING", 0) >= 6)
        os.kill(keeper, signal.SIGKILL)
        keeper = daemon.keeper_pid(within_s=20, other_than=keeper)
    daemon.wait(id_, "DONE", timeout_s=80)
    statuses = dict(daemon.rows(id_, "SELECT status, count(*) FROM trials GROUP BY status"))
    assert statuses == {"SUCCEEDED": TRIALS}
    witness.check_results(daemon, id_, notes)
    witness.check_tuners(tuner_notes, TRIALS)
    given_up = daemon.rows(id_, "SELECT trial_id, state, message FROM attempts WHERE given_up <> ''")
    assert all(state == "LOST" for _, state, _ in given_up)
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def test_daemon_and_keeper_killed_together(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    notes, tuner_notes = tmp_path / "witness.jsonl", tmp_path / "hosts"
    tuner_notes.mkdir()
    config = witness.config(trials=24, steps=10, pause_s=0.1, tuner=witness.noting_tuner(tuner_notes))
    id_ = daemon.create(config, code, {"WITNESS": str(notes)})
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING", 0) == 8)
    daemon.kill()
    os.kill(daemon.keeper_pid(), signal.SIGKILL)
    _wait_for_words(notes)
    daemon.start()
    daemon.wait(id_, "DONE", timeout_s=60)
    assert dict(daemon.rows(id_, "SELECT status, count(*) FROM trials GROUP BY status")) == {"SUCCEEDED": 24}
    witness.check_results(daemon, id_, notes)


def test_many_deaths_of_keepers_cost_no_result(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    """A trial whose final result is stored is neither tried again nor cancelled, however many keepers it outlives."""
    kills = endure(daemon, code, tmp_path / "witness.jsonl", trials=24, steps=4, pause_s=0.2, spread_s=0.4, gap_s=1.0)
    assert kills >= 4, "the trials outlived hardly any keeper"


def endure(
    daemon: Daemon, code: Path, notes: Path, *, trials: int, steps: int, pause_s: float, spread_s: float, gap_s: float
) -> int:
    """Kills one keeper after the other, at random moments at most `gap_s` apart, until all trials are done; answers how
    many were killed."""
    config = witness.config(trials=trials, steps=steps, pause_s=pause_s, spread_s=spread_s, tuner={"name": "Random"})
    id_ = daemon.create(config, code, {"WITNESS": str(notes)})
    seed = random.SystemRandom().randrange(2**32)
    gaps, kills = random.Random(seed), 0
    keeper = daemon.keeper_pid()
    while daemon.status(id_)["status"] not in ("DONE", "ERROR"):
        time.sleep(gaps.uniform(0.2, gap_s))
        os.kill(keeper, signal.SIGKILL)
        keeper = daemon.keeper_pid(within_s=20, other_than=keeper)
        kills += 1
    thrown_away = daemon.rows(
        id_,
        "SELECT a.trial_id, a.number FROM attempts a JOIN metrics m ON (m.trial_id, m.attempt) = (a.trial_id, a.number)"
        " WHERE a.given_up <> '' AND m.type = 'FINAL'",
    )
    assert thrown_away == [], f"tried again although the final result was stored (seed {seed})"
    unwell = daemon.rows(id_, "SELECT status, message FROM trials WHERE status <> 'SUCCEEDED' OR final_data IS NULL")
    assert unwell == [], f"seed {seed}"
    witness.check_results(daemon, id_, notes)
    return kills


def _wait_for_results(daemon: Daemon, id_: str) -> None:
    """Until the keeper that runs now has brought some."""
    count = "SELECT count(*) FROM metrics"
    before = daemon.rows(id_, count)
    daemon.wait_for(id_, lambda _: daemon.rows(id_, count) > before)


def _wait_for_words(notes: Path) -> None:
    """Until trials have reported what nobody takes."""
    before, deadline = _lines(notes), time.monotonic() + 20
    while _lines(notes) < before + 8:
        assert time.monotonic() < deadline, "no trial goes on"
        time.sleep(0.02)


def _lines(notes: Path) -> int:
    return notes.read_bytes().count(b"\n") if notes.exists() else 0
