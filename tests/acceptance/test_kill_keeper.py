"""Three keeper kills: jobs continue, the next keeper takes them over, and no process remains."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.acceptance import trial_notes
from tests.live_daemon import Daemon, assert_gone, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start, pytest.mark.timeout(120)]

#: Number of keeper kills; NNI_KILLS=40: the number for a release.
KILLS = int(os.environ.get("NNI_KILLS", "5"))
#: More trials than needed: the test ends the experiment after its last kill.
_MANY = 1000


def test_three_keepers_lose_no_job(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    notes, tuner_notes = tmp_path / "trials.jsonl", tmp_path / "hosts"
    tuner_notes.mkdir()
    config = trial_notes.config(trials=_MANY, steps=10, pause_s=0.1, tuner=trial_notes.noting_tuner(tuner_notes))
    id_ = daemon.create(config, code, {"TRIAL_NOTES": str(notes)})
    keeper = daemon.keeper_pid()
    for _ in range(3):
        _wait_for_results(daemon, id_)
        daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING", 0) >= 6)
        os.kill(keeper, signal.SIGKILL)
        keeper = daemon.keeper_pid(within_s=20, other_than=keeper)
    trials = _finish(daemon, id_)
    assert daemon.status(id_)["counts"] == {"SUCCEEDED": trials}
    trial_notes.check_results(daemon, id_, notes)
    trial_notes.check_tuners(tuner_notes, trials)
    given_up = [attempt for attempt in daemon.attempts(id_) if attempt["givenUp"]]
    assert all(attempt["state"] == "LOST" for attempt in given_up), given_up
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def test_daemon_and_keeper_killed_together(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    notes, tuner_notes = tmp_path / "trials.jsonl", tmp_path / "hosts"
    tuner_notes.mkdir()
    config = trial_notes.config(trials=12, steps=10, pause_s=0.1, tuner=trial_notes.noting_tuner(tuner_notes))
    id_ = daemon.create(config, code, {"TRIAL_NOTES": str(notes)})
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING", 0) == 8)
    daemon.kill()
    os.kill(daemon.keeper_pid(), signal.SIGKILL)
    _wait_for_words(notes)
    daemon.start()
    daemon.wait(id_, "DONE", timeout_s=60)
    assert daemon.status(id_)["counts"] == {"SUCCEEDED": 12}
    trial_notes.check_results(daemon, id_, notes)


def test_finished_trial_stays_finished_however_many_keepers_die(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    """A trial with a stored final result is neither retried nor cancelled after its keeper dies."""
    notes = tmp_path / "trials.jsonl"
    config = trial_notes.config(trials=_MANY, steps=4, pause_s=0.2, spread_s=0.4, tuner={"name": "Random"})
    id_ = daemon.create(config, code, {"TRIAL_NOTES": str(notes)})
    seed = random.SystemRandom().randrange(2**32)
    gaps = random.Random(seed)
    keeper = daemon.keeper_pid()
    for _ in range(KILLS):
        time.sleep(gaps.uniform(0.2, 1.0))
        os.kill(keeper, signal.SIGKILL)
        keeper = daemon.keeper_pid(within_s=20, other_than=keeper)
    _finish(daemon, id_)
    given_up = {(one["trialId"], one["number"]) for one in daemon.attempts(id_) if one["givenUp"]}
    thrown_away = given_up.intersection(picked(daemon.results(id_, type="FINAL"), "trialId", "attempt"))
    assert thrown_away == set(), f"tried again although the final result was stored (seed {seed})"
    unwell = [one for one in daemon.trials(id_) if one["status"] != "SUCCEEDED" or one["finalResult"] is None]
    assert unwell == [], f"seed {seed}"
    trial_notes.check_results(daemon, id_, notes)


def _finish(daemon: Daemon, id_: str) -> int:
    """Start no more trials; returns their number after all have ended."""
    daemon.call("PATCH", f"/experiments/{id_}", json={"maxTrialNumber": len(daemon.trials(id_))})
    daemon.wait(id_, "DONE", "ERROR", timeout_s=80)
    return len(daemon.trials(id_))


def _wait_for_results(daemon: Daemon, id_: str) -> None:
    """Wait until the current keeper has delivered results."""
    before = len(daemon.results(id_))
    daemon.wait_for(id_, lambda _: len(daemon.results(id_)) > before)


def _wait_for_words(notes: Path) -> None:
    """Wait until trials have reported results that no keeper has read."""
    before, deadline = _lines(notes), time.monotonic() + 20
    while _lines(notes) < before + 8:
        assert time.monotonic() < deadline, "no trial goes on"
        time.sleep(0.02)


def _lines(notes: Path) -> int:
    return notes.read_bytes().count(b"\n") if notes.exists() else 0
