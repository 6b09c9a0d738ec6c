"""Repeated daemon kills while trials run: no result is lost, duplicated or assigned to the wrong trial.

Kills happen at states of the store, which the test therefore reads directly: a stored intent, a half-written commit.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance import trial_notes
from tests.acceptance.write_ahead_log import read_log
from tests.live_daemon import Daemon, assert_gone, picked

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start, pytest.mark.timeout(180)]

#: NNI_KILLS=24: the number for a release.
KILLS = int(os.environ.get("NNI_KILLS", "8"))
#: More trials than can end between two kills.
TRIALS = 8 + 8 * KILLS


def test_killed_daemons_lose_and_double_no_result(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    notes, tuner_notes = tmp_path / "trials.jsonl", tmp_path / "hosts"
    tuner_notes.mkdir()
    config = trial_notes.config(trials=TRIALS, steps=5, pause_s=0.03, tuner=trial_notes.noting_tuner(tuner_notes))
    id_ = daemon.create(config, code, {"TRIAL_NOTES": str(notes)})
    for moment in _moments():
        moment(daemon, id_)
        daemon.start()
    daemon.wait(id_, "DONE", timeout_s=90)
    assert picked(daemon.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)] * TRIALS
    trial_notes.check_results(daemon, id_, notes)
    trial_notes.check_tuners(tuner_notes, TRIALS)
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def _moments() -> list[Callable[[Daemon, str], None]]:
    """The same number of each kind, in random order."""
    kinds = [_any_moment, _between_intent_and_spawn, _between_spawn_and_record, _during_a_commit]
    moments = [kinds[number % len(kinds)] for number in range(KILLS)]
    random.shuffle(moments)
    return moments


def _any_moment(daemon: Daemon, id_: str) -> None:
    time.sleep(random.uniform(0.02, 0.5))
    daemon.kill()


def _between_intent_and_spawn(daemon: Daemon, id_: str) -> None:
    """The keeper is frozen: the store contains an intent whose job is not started."""
    with _frozen(daemon.keeper_pid()):
        _wait_for_intent(daemon, id_)
        daemon.kill()


def _between_spawn_and_record(daemon: Daemon, id_: str) -> None:
    """The job is started, but the locked database cannot store its handle."""
    with contextlib.closing(sqlite3.connect(daemon.data / id_ / "db" / "nni.sqlite", timeout=20)) as blocker:
        with _frozen(daemon.keeper_pid()):
            _wait_for_intent(daemon, id_)
            blocker.execute("BEGIN IMMEDIATE")
        _wait_for_a_spawn(daemon, id_)
        daemon.kill()
        blocker.execute("ROLLBACK")


def _during_a_commit(daemon: Daemon, id_: str) -> None:
    """Limit the daemon's files to the first page of the next commit, which therefore stays half written."""
    assert daemon.process is not None
    _wait_for_a_result(daemon, id_)  # a keeper started later would be limited, too
    log, pid = daemon.data / id_ / "db" / "nni.sqlite-wal", daemon.process.pid
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with _frozen(pid):
            _wait_until_it_stands_still(pid)
            found = read_log(log)
            if found is not None and found.is_amid_commit:
                break
            if found is not None:
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (found.committed + found.frame * 3 // 2, hard))
        time.sleep(0.02)
    else:
        assert daemon.rows(id_, "SELECT count(*) FROM trials") == [(TRIALS,)], "there were commits, and none was met"
    daemon.kill()


def _wait_for_a_result(daemon: Daemon, id_: str) -> None:
    """Wait until the keeper has delivered a result, or none is left."""
    before = len(daemon.results(id_))
    daemon.wait_for(
        id_, lambda state: len(daemon.results(id_)) > before or state["counts"].get("SUCCEEDED", 0) == TRIALS
    )


def _wait_until_it_stands_still(pid: int) -> None:
    states = [Path(f"/proc/{pid}/task/{thread}/stat") for thread in os.listdir(f"/proc/{pid}/task")]
    while any(path.read_text().rpartition(")")[2].split()[0] != "T" for path in states):
        time.sleep(0)


@contextlib.contextmanager
def _frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _wait_for_intent(daemon: Daemon, id_: str) -> None:
    """Wait until the store contains an intent, or none can follow."""
    for _ in range(200):
        intents, made = daemon.rows(id_, "SELECT sum(state = 'INTENT'), count(*) FROM attempts")[0]
        if intents or made == TRIALS:
            return
        time.sleep(0.01)


def _wait_for_a_spawn(daemon: Daemon, id_: str) -> None:
    """Wait until the keeper has started a job whose handle is not stored, or none can be started.

    In the latter case the only intent waits for the end of another trial, which cannot be stored.
    """
    names = [name for (name,) in daemon.rows(id_, "SELECT job_name FROM attempts WHERE state = 'INTENT'")]
    files = [daemon.data / "keeper" / "jobs" / f"{name}.jsonl" for name in names]
    deadline = time.monotonic() + 3
    while files and time.monotonic() < deadline and not any(map(_has_started, files)):
        time.sleep(0.005)


def _has_started(state_file: Path) -> bool:
    """The second line of a job's state file is its process."""
    try:
        return state_file.read_bytes().count(b"\n") >= 2
    except FileNotFoundError:
        return False
