"""Full disks, and locked, read-only, deleted and corrupted files: no acknowledged data is lost, and all recovers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance import trial_notes
from tests.acceptance.numbered import LISTENING
from tests.live_daemon import PYTHON, Daemon, assert_gone, end_all, picked, processes_of
from tests.waiting import until
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.group("store_faults")]

#: Maximum time of an answer or refusal, in seconds.
PROMPT_S = 5.0
DISK_HOLDS = {"STORE_UNAVAILABLE", "PLATFORM_UNAVAILABLE"}


@pytest.fixture
def small_disk(daemon: Daemon, tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one experiment: its write-ahead log alone takes up to 4 MB.

    When all its trials wait for space to report, only the daemon's poll notices the full disk, so polls are frequent.
    """
    daemon.terminate()
    daemon.environment["NNI_MANAGER_SAFETY_POLL"] = "1s"
    daemon.start()
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


class Run:
    """An experiment of noting trials, and its answers."""

    def __init__(self, daemon: Daemon, code: Path, root: Path, *, folder: Path | None = None, **more: Any) -> None:
        self.daemon = daemon
        self.notes, self.hosts = root / "trials.jsonl", root / "hosts"
        self.hosts.mkdir()
        self.trials = more.get("trials", 24)
        fields: dict[str, Any] = {"trials": self.trials, "steps": 10, "pause_s": 0.05, "trialConcurrency": 4}
        config = trial_notes.config(**fields | {"tuner": trial_notes.noting_tuner(self.hosts)} | more)
        self._at_once = config["trialConcurrency"]
        working = {"experimentWorkingDirectory": str(folder)} if folder else {}
        self.id = daemon.create(config | working, code, {"TRIAL_NOTES": str(self.notes)})
        self.folder = (folder or daemon.data) / self.id

    @property
    def database(self) -> Path:
        return self.folder / "db" / "nni.sqlite"

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any answer, within the time limit."""
        began = time.monotonic()
        with self.daemon.client() as client:
            answer = client.request(method, f"/api/v1/experiments/{self.id}{path}", **options)
        assert time.monotonic() - began < PROMPT_S, f"{method} {path} took too long"
        assert answer.is_success or answer.status_code == 503, answer.text
        return answer

    def holds(self) -> set[str]:
        """The code of its current hold, or that it cannot be read."""
        answer = self.ask("GET", "")
        if answer.status_code == 503:
            assert "database" in answer.json()["error"]
            return {"STORE_UNAVAILABLE"}
        state = answer.json()
        if state["hold"] is None:
            return set()
        assert state["hold"]["sentence"] in state["errors"]
        return {state["hold"]["code"]}

    def is_at_work(self) -> bool:
        """Whether it can be opened; a daemon that has just started may fail."""
        return not any("cannot be opened" in error for error in _entry(self.daemon, self.id)["errors"])

    def wait_for_progress(self, trials: int = 6) -> None:
        self.daemon.wait_for(self.id, lambda state: state["counts"].get("SUCCEEDED", 0) >= trials)

    def check_refusals(self, words: str) -> None:
        """Check that commands are refused with the reason, and that reads are answered or refused with it."""
        for method, path, body in (
            ("PATCH", "", {"trialConcurrency": 3}),
            ("POST", "/trials", {"parameters": {"x": 0.5}}),
            ("POST", "/import", [{"parameter": {"x": 0.5}, "value": 1.0}]),
            ("POST", "/stop", None),
        ):
            answer = self.ask(method, path, json=body)
            assert answer.status_code == 503, answer.text
            assert words in answer.json()["error"]
            assert "nothing was changed" in answer.json()["error"]
        for path in ("", "/trials", "/metrics"):
            self.ask("GET", path)

    def check_end(self) -> None:
        """Check that no result is missing or duplicated, and that no refused command was carried out."""
        until(self.is_at_work)
        self.daemon.wait(self.id, "DONE")
        ends = picked(self.daemon.trials(self.id), "status", "attempt", "stopRequest")
        assert ends == [("SUCCEEDED", 1, None)] * self.trials
        with contextlib.closing(sqlite3.connect(self.database, timeout=20)) as connection:
            assert connection.execute("SELECT count(*) FROM imports").fetchall() == [(0,)], "nothing else tells of them"
        state = self.daemon.status(self.id)
        assert (state["hold"], state["errors"], state["trialConcurrency"]) == (None, [], self._at_once)
        trial_notes.check_results(self.daemon, self.id, self.notes)
        trial_notes.check_tuners(self.hosts, self.trials)

    def told(self) -> str:
        """Wait until its database contains STOPPED, which the daemon has already reported."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=20)) as connection:
            ((status,),) = connection.execute("SELECT status FROM experiment").fetchall()
        return str(status) if status == "STOPPED" else ""

    def stop(self) -> None:
        self.daemon.call("POST", f"/experiments/{self.id}/stop")


# Full


@pytest.mark.machines
def test_full_disk_delays_and_loses_nothing(daemon: Daemon, code: Path, tmp_path: Path, small_disk: Path) -> None:
    run = Run(daemon, code, tmp_path, folder=small_disk)
    run.wait_for_progress()
    filling = _fill(small_disk)
    assert until(run.holds) <= DISK_HOLDS
    _during(3.0, lambda: run.holds() <= DISK_HOLDS)
    assert daemon.call("GET", "/experiments")["experiments"][0]["status"] == "RUNNING"
    filling.unlink()
    run.check_end()
    run.stop()
    assert daemon.terminate() == 0


@pytest.mark.machines
def test_killed_daemon_starts_on_a_full_disk(daemon: Daemon, code: Path, tmp_path: Path, small_disk: Path) -> None:
    run = Run(daemon, code, tmp_path, folder=small_disk)
    run.wait_for_progress()
    filling = _fill(small_disk)
    until(run.holds)
    daemon.kill()
    daemon.start()
    assert until(lambda: daemon.call("GET", "/experiments")["experiments"][0]["errors"])
    filling.unlink()
    run.check_end()
    run.stop()
    assert daemon.terminate() == 0


@pytest.mark.machines
def test_terminated_daemon_starts_on_a_full_disk(code: Path, tmp_path: Path) -> None:
    """All its files are on that disk: SQLite frees the space of the index's log when the daemon ends."""
    data = tmp_path / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", data], check=True)
    daemon = Daemon(data).start()
    try:
        run = Run(daemon, code, tmp_path)
        run.wait_for_progress(1)
        assert daemon.terminate() == 0
        filling = _fill(data)
        daemon.start()
        assert "the reserved space is now used" in daemon.log()
        assert run.holds() <= DISK_HOLDS, "it serves, and says so where the room is not enough"
        filling.unlink()
        run.check_end()
        daemon.call("POST", f"/experiments/{run.id}/stop")
        assert daemon.terminate() == 0
    finally:
        end_all(str(data))
        subprocess.run(["umount", "--lazy", data], check=True)


@pytest.mark.machines
def test_full_disk_does_not_delay_the_daemons_end(daemon: Daemon, code: Path, tmp_path: Path, small_disk: Path) -> None:
    run = Run(daemon, code, tmp_path, folder=small_disk)
    run.wait_for_progress()
    filling = _fill(small_disk)
    until(run.holds)
    began = time.monotonic()
    assert daemon.terminate() == 0
    assert time.monotonic() - began < PROMPT_S
    filling.unlink()
    daemon.start()
    run.check_end()
    run.stop()
    assert daemon.terminate() == 0


def _fill(disk: Path) -> Path:
    """Fill the disk except for a few bytes; returns the file."""
    path = disk / "filling"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


# Locked


def test_locked_database_delays_trials_and_refuses_calls(shared: Daemon, code: Path, tmp_path: Path) -> None:
    run = Run(shared, code, tmp_path)
    run.wait_for_progress()
    with _locked(run.database):
        assert until(run.holds) == {"STORE_UNAVAILABLE"}
        run.check_refusals("is locked by another process")
        _during(8.0, lambda: run.holds() == {"STORE_UNAVAILABLE"})
    run.check_end()
    run.stop()


def test_idle_experiment_refuses_what_it_cannot_store(shared: Daemon, code: Path, tmp_path: Path) -> None:
    run = Run(shared, code, tmp_path, trials=2, steps=1)
    shared.wait(run.id, "DONE")
    with _locked(run.database):
        run.check_refusals("is locked by another process")
    until(lambda: not run.holds())
    assert run.ask("PATCH", "", json={"maxTrialNumber": 3}).status_code == 200
    run.trials = 3
    run.check_end()
    run.stop()


def test_daemon_starts_with_a_locked_database(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    run = Run(daemon, code, tmp_path)
    run.wait_for_progress()
    daemon.kill()
    with _locked(run.database):
        daemon.start()
        (entry,) = daemon.call("GET", "/experiments")["experiments"]
        assert "is locked by another process" in entry["errors"][0]
    run.check_end()


def test_results_survive_a_stop_while_the_store_is_locked(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    """Some jobs end before the stop and some because of it, while the experiment cannot be opened.

    No result is lost, and no finished trial runs again.
    """
    run = Run(daemon, code, tmp_path, trials=8, spread_s=2)
    daemon.wait_for(run.id, lambda state: state["counts"].get("RUNNING", 0) == 4)
    daemon.kill()
    with _locked(run.database):
        daemon.start()
        ended = until(lambda: _ended_commands(run.folder))
        assert daemon.call("POST", f"/experiments/{run.id}/stop")["status"] == "STOPPED"
        assert _entry(daemon, run.id)["status"] == "STOPPED"
        assert not processes_of(f"{run.folder}/trials")
    assert until(run.told) == "STOPPED"
    daemon.wait(run.id, "STOPPED")
    assert _entry(daemon, run.id)["status"] == "STOPPED"
    statuses = dict(picked(daemon.trials(run.id), "id", "status"))
    assert {statuses[trial] for trial in ended} == {"SUCCEEDED"}
    assert set(statuses.values()) == {"SUCCEEDED", "USER_CANCELED"}
    daemon.call("POST", f"/experiments/{run.id}/resume")
    daemon.wait(run.id, "DONE")
    assert set(picked(daemon.trials(run.id), "status", "message")) == {("SUCCEEDED", "")}
    assert set(picked(daemon.attempts(run.id), "givenUp")) == {(None,)}
    trial_notes.check_results(daemon, run.id, run.notes)
    _check_every_metric(run)


def test_next_daemon_completes_a_stop_that_was_not_stored(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    # first attempts still run when they are stopped, even on a slow machine; second ones are quick
    pause = f'case "$NNI_SYS_DIR" in *-2) pause=0;; *) pause=0.5;; esac; exec {PYTHON} noting_trial.py 80 $pause 0'
    run = Run(daemon, code, tmp_path, trials=4, trialCommand=pause)
    daemon.wait_for(run.id, lambda state: state["counts"].get("RUNNING", 0) == 4)
    daemon.kill()
    with _locked(run.database):
        daemon.start()
        daemon.call("POST", f"/experiments/{run.id}/stop")
        daemon.kill()
        daemon.start()
        assert (_entry(daemon, run.id)["status"], _entry(daemon, run.id)["hold"]) == ("STOPPED", None)
        with daemon.client() as client:  # the only access to what its jobs left
            assert client.post(f"/api/v1/experiments/{run.id}/resume").status_code == 503
    daemon.call("POST", f"/experiments/{run.id}/resume")
    daemon.wait(run.id, "DONE")
    assert picked(daemon.trials(run.id), "status", "attempt") == [("SUCCEEDED", 2)] * 4
    trial_notes.check_results(daemon, run.id, run.notes)
    _check_every_metric(run)


def _ended_commands(folder: Path) -> list[str]:
    """Trials whose first attempt exited on its own, from the keeper's records."""
    records = [path.read_text().splitlines() for path in (folder.parent / "keeper" / "jobs").glob("*.jsonl")]
    claims = [json.loads(lines[0]) for lines in records if protocol.ENDED in lines[-1]]
    return [Path(claim["attempt_directory"]).name for claim in claims if str(folder) in claim["attempt_directory"]]


def _check_every_metric(run: Run) -> None:
    """Results of all attempts, including those that a stop ended."""
    wrote = sorted((entry["attempt"], entry["value"]) for entry in trial_notes.read(run.notes) if "value" in entry)
    results = picked(run.daemon.results(run.id), "trialId", "attempt", "result")
    assert sorted((f"{id_}-{n}" if n > 1 else id_, json.loads(data)) for id_, n, data in results) == wrote


def test_locked_index_stops_nothing(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    run = Run(daemon, code, tmp_path, trials=20)
    with _locked(daemon.data / "index.sqlite"):
        run.wait_for_progress(20)
        daemon.wait(run.id, "DONE")
        with daemon.client() as client:
            body = {"config": json.dumps(trial_notes.config(trials=1, steps=1, pause_s=0, tuner={"name": "Random"}))}
            began = time.monotonic()
            refused = client.post("/api/v1/experiments", json={**body, "directory": str(code)})
        assert time.monotonic() - began < PROMPT_S
        assert refused.status_code == 503
        assert "index.sqlite is locked by another process" in refused.json()["error"]
    run.check_end()
    until(lambda: _entry(daemon, run.id)["status"] == "DONE")
    assert [path.parent.name for path in daemon.data.glob("*/db")] == [run.id], "a refused experiment leaves nothing"


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Another process holds the database exclusively."""
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.stdin.close()


# Read-only


@pytest.fixture
def freeze() -> Iterator[Callable[[Path], None]]:
    """Make files immutable, even for root, until the end of the block."""
    frozen: list[Path] = []

    def freeze(path: Path) -> None:
        frozen.append(path)
        subprocess.run(["chattr", "+i", path], check=True, capture_output=True)

    yield freeze
    for path in frozen:
        subprocess.run(["chattr", "-i", path], check=False, capture_output=True)


@pytest.mark.machines
def test_read_only_database_causes_a_hold(
    daemon: Daemon, code: Path, tmp_path: Path, freeze: Callable[[Path], None]
) -> None:
    run = Run(daemon, code, tmp_path)
    run.wait_for_progress()
    wal = run.database.with_name("nni.sqlite-wal")
    freeze(wal)
    assert until(run.holds) <= DISK_HOLDS
    run.check_refusals("cannot be")
    _during(2.0, lambda: run.holds() <= DISK_HOLDS)
    subprocess.run(["chattr", "-i", wal], check=True)
    run.check_end()


@pytest.mark.machines
def test_read_only_trials_folder_causes_a_hold(
    daemon: Daemon, code: Path, tmp_path: Path, freeze: Callable[[Path], None]
) -> None:
    run = Run(daemon, code, tmp_path)
    run.wait_for_progress()
    trials = run.folder / "trials"
    freeze(trials)
    assert until(run.holds) == {"PLATFORM_UNAVAILABLE"}
    assert str(trials) in run.ask("GET", "").json()["errors"][0]
    daemon.wait_for(run.id, lambda state: state["counts"].get("RUNNING", 0) == 0)
    subprocess.run(["chattr", "-i", trials], check=True)
    run.check_end()


# Deleted and corrupted


LOCAL = {"platform": "local"}
SCRIPTED = {"platform": "scripted", "launch": "process"}


def test_deleted_index_is_rebuilt_from_the_folders(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    run = Run(daemon, code, tmp_path, experimentName="kept")
    other = daemon.create(
        trial_notes.config(trials=1, steps=1, pause_s=0, tuner={"name": "Random"}),
        code,
        {"TRIAL_NOTES": str(tmp_path / "other")},
    )
    daemon.wait(other, "DONE")
    daemon.call("POST", f"/experiments/{other}/stop")
    run.wait_for_progress()
    before = daemon.call("GET", "/experiments")
    assert daemon.terminate() == 0
    for path in daemon.data.glob("index.sqlite*"):
        path.unlink()
    daemon.start()
    after = daemon.call("GET", "/experiments")
    assert [one["id"] for one in after["experiments"]] == [one["id"] for one in before["experiments"]]
    assert [one["name"] for one in after["experiments"]] == ["kept", None]
    assert _entry(daemon, other)["status"] == "STOPPED"
    run.check_end()


def test_corrupt_databases_affect_no_other_experiment(daemon: Daemon, code: Path, tmp_path: Path) -> None:
    runs = {fate: _small_run(daemon, code, tmp_path / fate) for fate in SPOIL}
    other = _small_run(daemon, code, tmp_path / "other")
    for run in (*runs.values(), other):
        run.wait_for_progress(2)
    assert daemon.terminate() == 0
    for fate, run in runs.items():
        SPOIL[fate](run.database)
    daemon.start()
    for run in runs.values():
        _check_corrupt(run)
    other.check_end()
    assert daemon.terminate() == 0


def _small_run(daemon: Daemon, code: Path, root: Path) -> Run:
    """A long experiment with two concurrent trials."""
    root.mkdir()
    return Run(daemon, code, root, trials=8, trialConcurrency=2)


def _check_corrupt(run: Run) -> None:
    entry = until(lambda: (found := _entry(run.daemon, run.id)) and found["errors"] and found)
    assert run.id in entry["errors"][0]
    assert "restore it from a backup" in entry["errors"][0]
    with run.daemon.client() as client:
        answer = client.get(f"/api/v1/experiments/{run.id}")
        assert answer.status_code == 409 or answer.json()["errors"], answer.text
        refused = client.post(f"/api/v1/experiments/{run.id}/trials", json={"parameters": {"x": 1}})
    assert (refused.status_code, "restore it from a backup" in refused.text) == (409, True)


@pytest.mark.parametrize(
    ("fate", "what", "platform"),
    [
        ("removed while it runs", "it", LOCAL),
        ("removed just now", "it", LOCAL),
        ("removed just now", "all", SCRIPTED),
        ("corrupt when the daemon comes back", "all", LOCAL),
        ("corrupt when the daemon comes back", "it", SCRIPTED),
    ],
)
def test_stop_ends_trials_of_a_failed_experiment(
    daemon: Daemon, code: Path, fate: str, what: str, platform: dict[str, str]
) -> None:
    """Its own loop cannot stop them, so they would run forever. Nothing is written into a removed file."""
    daemon.terminate()
    daemon.environment["NNI_MANAGER_SAFETY_POLL"] = "1s" if fate == "removed while it runs" else "600s"
    daemon.start(*LISTENING)
    sleep = {"trialCommand": "exec sleep 1000", "trainingService": platform}
    id_ = daemon.create(trial_notes.config(trials=2, steps=1, pause_s=0, tuner={"name": "Random"}, **sleep), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    until(lambda: len(_sleeping(id_)) == 2)
    if words := FATES[fate](daemon, daemon.data / id_ / "db"):
        # if the files are half removed, a writer only notices that the database cannot be opened
        until(lambda: any(words in error for error in _entry(daemon, id_)["errors"]))
    jobs = _sleeping(id_)
    assert len(jobs) == 2
    daemon.call("POST", f"/experiments/{id_}/stop" if what == "it" else "/experiments/stop")
    assert [job for job in jobs if job.is_running()] == []
    assert _entry(daemon, id_)["status"] == "STOPPED"
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))


def _sleeping(id_: str) -> list[psutil.Process]:
    """The processes of trials of all keepers."""
    return [process for process in processes_of(id_) if _last_word(process) == "1000"]


def _last_word(process: psutil.Process) -> str:
    """The last argument of a process; empty if it has ended."""
    with contextlib.suppress(psutil.Error):
        return (process.cmdline() or [""])[-1]
    return ""


def _remove_while_it_runs(daemon: Daemon, folder: Path) -> str:
    shutil.rmtree(folder)
    return "was removed, replaced or emptied while it was open"


def _remove_just_now(daemon: Daemon, folder: Path) -> str:
    shutil.rmtree(folder.parent)
    return ""


def _scramble_meanwhile(daemon: Daemon, folder: Path) -> str:
    daemon.kill()
    _scramble(folder / "nni.sqlite", 0)
    daemon.start(*LISTENING)
    return "restore it from a backup"


#: Fault → function that causes it and returns its message; empty: unnoticed until the stop.
FATES: dict[str, Callable[[Daemon, Path], str]] = {
    "removed while it runs": _remove_while_it_runs,
    "removed just now": _remove_just_now,
    "corrupt when the daemon comes back": _scramble_meanwhile,
}


def _scramble(database: Path, start: int) -> None:
    with database.open("r+b") as file:
        file.seek(start)
        file.write(os.urandom(database.stat().st_size - start))


def _exchange(database: Path) -> None:
    database.unlink()
    _execute(database, "CREATE TABLE notes (text)")


def _execute(database: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(statement)


SPOIL: dict[str, Callable[[Path], object]] = {
    "scrambled but the head": lambda database: _scramble(database, 8192),
    "scrambled": lambda database: _scramble(database, 0),
    "emptied": lambda database: os.truncate(database, 0),
    "exchanged": _exchange,
    "config scrambled": lambda database: _execute(database, "UPDATE experiment SET config = '{'"),
}


def _entry(daemon: Daemon, id_: str) -> dict[str, Any]:
    (found,) = (one for one in daemon.call("GET", "/experiments")["experiments"] if one["id"] == id_)
    return dict(found)


def _during(seconds: float, holds: Callable[[], bool]) -> None:
    """Check that a condition holds the whole time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert holds()
        time.sleep(0.1)


@pytest.mark.parametrize("names", [("log",), ("log", "checkpoint"), ("log", "trials", "code")], ids="+".join)
def test_removed_folders_are_recreated_on_opening(
    daemon: Daemon, code: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    run = Run(daemon, code, tmp_path, trials=4, steps=1)
    daemon.wait(run.id, "DONE")
    daemon.kill()
    for name in names:
        shutil.rmtree(run.folder / name, ignore_errors=True)
    daemon.start()
    assert run.ask("PATCH", "", json={"maxTrialNumber": 6}).status_code == 200
    daemon.wait_for(run.id, lambda state: state["counts"].get("SUCCEEDED") == 6)
    log = (run.folder / "log" / "nnimanager.log").read_text()
    for name in names:
        assert name == "code" or f"the folder {run.folder / name} was missing" in log


@pytest.mark.parametrize("is_open", [True, False])
def test_empty_database_is_named_everywhere(daemon: Daemon, code: Path, tmp_path: Path, is_open: bool) -> None:
    run = _small_run(daemon, code, tmp_path / "run")
    daemon.wait(run.id, "DONE")
    if not is_open:
        run.stop()
    assert daemon.terminate() == 0
    run.database.write_bytes(b"")
    daemon.start()
    with daemon.client() as client:
        for path in ("", "/trials", "/metrics"):
            answer = client.get(f"/api/v1/experiments/{run.id}{path}")
            assert f"{run.database} is empty (0 bytes); restore it from a backup" in answer.text
            assert "TypeError" not in answer.text
        refused = client.post(f"/api/v1/experiments/{run.id}/resume")
        assert (refused.is_success, "is empty (0 bytes)" in refused.text) == (False, True)
    assert run.database.read_bytes() == b"", "it is left as it is"


@pytest.mark.parametrize("lost", ["database", "keeper"])
def test_results_in_folders_of_lost_jobs_are_read(daemon: Daemon, code: Path, tmp_path: Path, lost: str) -> None:
    """The keeper has forgotten the jobs of an older database copy, or its files are missing."""
    run = Run(daemon, code, tmp_path, trials=6, steps=4, pause_s=0.7, trialConcurrency=6, tuner={"name": "Random"})
    daemon.wait_for(run.id, lambda state: state["counts"].get("RUNNING") == 6)
    daemon.terminate()
    if lost == "database":
        shutil.copytree(run.database.parent, tmp_path / "copy")
        daemon.start()
        daemon.wait(run.id, "DONE")
        until(lambda: not [*(daemon.data / "keeper" / "jobs").glob("*.jsonl")])
        daemon.terminate()
        shutil.rmtree(run.database.parent)
        shutil.copytree(tmp_path / "copy", run.database.parent)
    else:
        until(lambda: len(_ended_commands(run.folder)) == 6)
        end_all(str(daemon.data))
        shutil.rmtree(daemon.data / "keeper")
    daemon.start()
    daemon.wait(run.id, "DONE")
    assert picked(daemon.trials(run.id), "status", "attempt") == [("SUCCEEDED", 1)] * 6
    messages = [trial["message"] for trial in daemon.trials(run.id)]
    assert ["does not know this job" in message for message in messages] == [True] * 6, messages
    trial_notes.check_results(daemon, run.id, run.notes)


@pytest.mark.parametrize("is_killed", [False, True], ids=["at work", "at the start"])
def test_restored_database_reopens_the_experiment(daemon: Daemon, code: Path, tmp_path: Path, is_killed: bool) -> None:
    run = Run(daemon, code, tmp_path)
    run.wait_for_progress()
    if is_killed:
        daemon.kill()
    folder = run.database.parent.rename(tmp_path / "away")
    if is_killed:
        daemon.start()
    until(lambda: _entry(daemon, run.id)["errors"])
    folder.rename(run.database.parent)
    until(lambda: not _entry(daemon, run.id)["errors"])
    run.check_end()
