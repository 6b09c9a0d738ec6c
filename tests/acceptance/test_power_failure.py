"""After a power failure databases have their last synced state, and no finished trial runs again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import trial_notes
from tests.live_daemon import Daemon, end_all, picked
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start]


@pytest.fixture
def synced(daemon: Daemon, tmp_path: Path) -> Iterator[Path]:
    """Last synced files of databases, by path with + instead of slashes."""
    library, source = tmp_path / "power_failure.so", Path(__file__).parents[1] / "power_failure.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    folder = tmp_path / "synced"
    folder.mkdir()
    daemon.terminate()
    daemon.environment |= {"LD_PRELOAD": str(library), "SYNCED_FILES": str(folder)}
    daemon.start()
    yield folder
    end_all(str(daemon.data))


def _lose_what_is_not_synced(daemon: Daemon, synced: Path, id_: str) -> None:
    """Kill the daemon and restore the synced state of the experiment's database."""
    daemon.kill()
    database = daemon.data / id_ / "db" / "nni.sqlite"
    for suffix in ("", "-wal", "-shm"):
        file = database.with_name(database.name + suffix)
        on_disk = synced / str(file).replace("/", "+")
        file.unlink(missing_ok=True)
        if on_disk.exists():
            shutil.copy(on_disk, file)


def _experiment(daemon: Daemon, code: Path, notes: Path, trials: int) -> str:
    config = trial_notes.config(trials=trials, steps=2, pause_s=0.02, tuner={"name": "Random"})
    return daemon.create(config | {"trialConcurrency": 2}, code, {"TRIAL_NOTES": str(notes)})


def _kept_jobs(daemon: Daemon) -> list[str]:
    return [name for name in os.listdir(daemon.data / "keeper" / "jobs") if name.endswith(".jsonl")]


def test_power_failure_reruns_no_forgotten_trial(daemon: Daemon, code: Path, tmp_path: Path, synced: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    id_ = _experiment(daemon, code, notes, 12)
    daemon.wait(id_, "DONE")
    until(lambda: not _kept_jobs(daemon))
    _lose_what_is_not_synced(daemon, synced, id_)
    daemon.start()
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)] * 12
    trial_notes.check_results(daemon, id_, notes)


def test_power_failure_while_running_reruns_no_finished_trial(
    daemon: Daemon, code: Path, tmp_path: Path, synced: Path
) -> None:
    notes = tmp_path / "notes.jsonl"
    id_ = _experiment(daemon, code, notes, 200)
    for enough in (20, 60):
        daemon.wait_for(id_, lambda state, n=enough: state["counts"].get("SUCCEEDED", 0) >= n)
        until(lambda: len(_kept_jobs(daemon)) < 8)
        _lose_what_is_not_synced(daemon, synced, id_)
        daemon.start()
    daemon.wait(id_, "DONE")
    assert set(picked(daemon.attempts(id_), "number", "givenUp")) == {(1, None)}
    assert set(picked(daemon.trials(id_), "status")) == {("SUCCEEDED",)}
