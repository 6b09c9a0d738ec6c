"""The list of experiments and their folders, if one is older than the other or missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon, assert_gone, end_all, picked, processes_of
from tests.waiting import until

pytestmark = pytest.mark.acceptance

AT_WORK = ("RUNNING", "NO_MORE_TRIAL")


@pytest.fixture
def enough(tmp_path: Path) -> Path:
    """File whose existence ends the trials of `at_work`."""
    return tmp_path / "enough"


def _config(enough: Path, **fields: object) -> dict[str, Any]:
    report = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"while [ ! -e {enough} ]; do sleep 0.1; done; {report}",
        "trialCodeDirectory": ".",
        "trialConcurrency": 2,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
        **fields,
    }


def _at_work(daemon: Daemon, code: Path, enough: Path, **fields: object) -> str:
    id_ = daemon.create(_config(enough, **fields), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    return id_


def _listed(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in daemon.call("GET", "/experiments")["experiments"]}


def _index(daemon: Daemon, *statements: str) -> None:
    """Change the list of a stopped daemon."""
    with contextlib.closing(sqlite3.connect(daemon.data / "index.sqlite")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _ends_well(daemon: Daemon, id_: str, enough: Path) -> None:
    """Check that its trials started once."""
    enough.touch()
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "status", "attempt") == [("SUCCEEDED", 1)] * 2


def test_note_older_than_its_folder_deletes_nothing(daemon: Daemon, code: Path, enough: Path) -> None:
    """A power failure right after `create` left only the list's note about an incomplete folder."""
    id_ = _at_work(daemon, code, enough)
    daemon.kill()
    _index(
        daemon,
        f"DELETE FROM experiments WHERE id = '{id_}'",
        f"INSERT INTO leftovers (id, folder) VALUES ('{id_}', '{daemon.data / id_}')",
    )
    daemon.start()
    assert _listed(daemon)[id_]["status"] in AT_WORK
    _ends_well(daemon, id_, enough)


def test_unknown_folder_opens_if_its_jobs_ended_meanwhile(daemon: Daemon, code: Path, enough: Path) -> None:
    """Their results are still at the keeper."""
    id_ = _at_work(daemon, code, enough)
    daemon.kill()
    _index(daemon, f"DELETE FROM experiments WHERE id = '{id_}'")
    enough.touch()
    until(lambda: not processes_of(str(daemon.data / id_)), what="the end of the trials")
    daemon.start()
    _ends_well(daemon, id_, enough)


@pytest.mark.parametrize("has_jobs", [True, False])
def test_unknown_folder_opens_only_with_jobs(daemon: Daemon, code: Path, enough: Path, has_jobs: bool) -> None:
    id_ = _at_work(daemon, code, enough)
    keeper = daemon.keeper_pid()
    daemon.kill()
    _index(daemon, f"DELETE FROM experiments WHERE id = '{id_}'")
    if not has_jobs:
        os.kill(keeper, signal.SIGKILL)
        end_all(str(daemon.data))
        shutil.rmtree(daemon.data / "keeper")
    daemon.start()
    found = _listed(daemon)[id_]
    assert found["status"] in (AT_WORK if has_jobs else ("STOPPED",))
    if has_jobs:
        _ends_well(daemon, id_, enough)
    else:
        (sentence,) = found["errors"]
        assert sentence.startswith("found in") and f"`nnictl resume {id_}`" in sentence
        enough.touch()
        daemon.call("POST", f"/experiments/{id_}/resume")
        daemon.wait(id_, "DONE")
        assert _listed(daemon)[id_]["errors"] == []


def test_index_older_than_a_resume_opens_what_runs(daemon: Daemon, code: Path, enough: Path, tmp_path: Path) -> None:
    id_ = _at_work(daemon, code, enough)
    daemon.call("POST", f"/experiments/{id_}/stop")
    daemon.terminate()
    shutil.copy(daemon.data / "index.sqlite", tmp_path / "older")
    daemon.start()
    daemon.call("POST", f"/experiments/{id_}/resume")
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    before = picked(daemon.trials(id_), "id", "attempt")
    daemon.kill()
    for left in daemon.data.glob("index.sqlite*"):
        left.unlink()
    shutil.copy(tmp_path / "older", daemon.data / "index.sqlite")
    daemon.start()
    assert _listed(daemon)[id_]["status"] in AT_WORK
    enough.touch()
    daemon.wait(id_, "DONE")
    assert picked(daemon.trials(id_), "id", "attempt") == before


def test_copied_folder_is_listed_and_resumed_at_once(daemon: Daemon, code: Path, enough: Path, tmp_path: Path) -> None:
    enough.touch()
    id_ = daemon.create(_config(enough), code)
    daemon.wait(id_, "DONE")
    daemon.call("POST", f"/experiments/{id_}/stop")
    shutil.copytree(daemon.data / id_, tmp_path / "kept")
    daemon.call("DELETE", f"/experiments/{id_}")
    assert id_ not in _listed(daemon) and not (daemon.data / id_).exists()
    shutil.copytree(tmp_path / "kept", daemon.data / id_)
    daemon.call("POST", f"/experiments/{id_}/resume")
    daemon.wait(id_, "DONE")
    assert _listed(daemon)[id_]["counts"] == {"SUCCEEDED": 2}


@pytest.mark.parametrize("how", ["emptied", "removed", "rowless", "other tables", "folder gone"])
def test_lost_database_is_named_in_an_error(daemon: Daemon, code: Path, enough: Path, how: str, tmp_path: Path) -> None:
    enough.touch()
    id_ = daemon.create(_config(enough), code)
    daemon.wait(id_, "DONE")
    daemon.call("POST", f"/experiments/{id_}/stop")
    database = daemon.data / id_ / "db" / "nni.sqlite"
    _spoil(database, how)
    for _ in ("the daemon that closed it", "the next one"):
        (found,) = _listed(daemon).values()
        assert found["status"] == "STOPPED"
        if how not in ("rowless", "other tables"):
            assert any(str(daemon.data / id_) in sentence for sentence in found["errors"])
        with daemon.client() as client:
            calls = [
                client.get(f"/api/v1/experiments/{id_}"),
                client.get(f"/experiments/{id_}/api/v1/nni/check-status"),
                client.post(f"/api/v1/experiments/{id_}/resume"),
                client.post("/api/v1/experiments/view", json={"id": id_}),
            ]
        for answer in calls:
            assert answer.status_code in (404, 409) and str(daemon.data / id_) in answer.text, answer.text
        daemon.terminate()
        daemon.start()
    daemon.call("DELETE", f"/experiments/{id_}")
    assert _listed(daemon) == {} and not (daemon.data / id_).exists()


def _spoil(database: Path, how: str) -> None:
    if how == "folder gone":
        shutil.rmtree(database.parent.parent)
    elif how == "emptied":
        database.write_bytes(b"")
    elif how == "removed":
        database.unlink()
    else:
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("DELETE FROM experiment" if how == "rowless" else "DROP TABLE experiment")


def test_unreadable_database_with_jobs_keeps_an_owner(daemon: Daemon, code: Path, enough: Path) -> None:
    """List and database are lost while jobs run; `stop` ends the jobs."""
    id_ = _at_work(daemon, code, enough)
    daemon.kill()
    for left in daemon.data.glob("index.sqlite*"):
        left.unlink()
    (daemon.data / id_ / "db" / "nni.sqlite").write_bytes(b"")
    daemon.start()
    found = _listed(daemon)[id_]
    assert "is empty" in found["hold"]["sentence"]
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert [one for one in processes_of(str(enough)) if "sh" in one.name()] == []


@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
def test_list_lost_while_the_daemon_runs_is_rebuilt(
    daemon: Daemon, code: Path, enough: Path, tmp_path: Path, how: str
) -> None:
    shutil.copy(daemon.data / "index.sqlite", tmp_path / "older")
    id_ = _at_work(daemon, code, enough)
    index = daemon.data / "index.sqlite"
    if how == "emptied":
        index.write_bytes(b"")
    else:
        for left in daemon.data.glob("index.sqlite*"):
            left.unlink()
    if how == "replaced":
        shutil.copy(tmp_path / "older", index)
    assert _listed(daemon)[id_]["status"] in AT_WORK
    second = daemon.create(_config(enough), code)
    daemon.kill()
    daemon.start()
    assert {id_, second} <= _listed(daemon).keys()
    _ends_well(daemon, id_, enough)


@pytest.mark.parametrize("lost", ["file", "file and list"])
def test_lost_identity_starts_nothing_twice(daemon: Daemon, code: Path, enough: Path, lost: str) -> None:
    id_ = _at_work(daemon, code, enough)
    name = (daemon.data / "identity").read_text()
    daemon.kill()
    (daemon.data / "identity").write_text("")
    if lost == "file and list":
        for left in daemon.data.glob("index.sqlite*"):
            left.unlink()
    daemon.start()
    if lost == "file and list":
        hold = daemon.wait_for(id_, lambda state: state["hold"])["hold"]["sentence"]
        assert name in hold and "`nni-manager identity --moved`" in hold
        assert daemon.call("GET", f"/experiments/{id_}")["status"] in AT_WORK
        daemon.terminate()
        command = [sys.executable, "-m", "nni_manager", "identity", "--moved", "--data-dir", str(daemon.data)]
        subprocess.run(command, check=True)
        daemon.start()
    assert (daemon.data / "identity").read_text() == name
    _ends_well(daemon, id_, enough)


def test_older_database_reuses_no_number_and_ends_its_jobs(
    daemon: Daemon, code: Path, enough: Path, tmp_path: Path
) -> None:
    """The database copy predates the second trial, which thus has no row."""
    id_ = daemon.create(_config(enough, maxTrialNumber=9, trialConcurrency=1), code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 1)
    daemon.terminate()
    shutil.copytree(daemon.data / id_ / "db", tmp_path / "older")
    daemon.start()
    daemon.call("PATCH", f"/experiments/{id_}", json={"trialConcurrency": 2})
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    kept, lost = [trial["id"] for trial in daemon.trials(id_)]
    daemon.kill()
    shutil.rmtree(daemon.data / id_ / "db")
    shutil.copytree(tmp_path / "older", daemon.data / id_ / "db")
    daemon.start()
    daemon.call("PATCH", f"/experiments/{id_}", json={"trialConcurrency": 2})
    state = daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 2)
    (warning,) = [one for one in state["warnings"] if one["code"] == "UNRECORDED_TRIALS"]
    assert lost in warning["message"]
    trials = daemon.trials(id_)
    assert [(trial["sequenceId"], trial["attempt"]) for trial in trials] == [(0, 1), (2, 1)]
    assert trials[0]["id"] == kept and trials[1]["id"] != lost
    assert_gone(f"{id_}/trials/{lost}")


def test_clean_ends_jobs_of_an_unlisted_experiment(daemon: Daemon, code: Path, enough: Path) -> None:
    id_ = _at_work(daemon, code, enough)
    daemon.kill()
    _index(daemon, f"DELETE FROM experiments WHERE id = '{id_}'")
    shutil.rmtree(daemon.data / id_)
    daemon.start()
    assert _listed(daemon) == {}
    (cleaned,) = daemon.call("POST", "/platforms/clean", json={"platforms": []})["cleaned"]
    assert (cleaned["experiment"], cleaned["jobs"], cleaned["trouble"]) == (id_, 2, "")
    assert daemon.call("POST", "/platforms/clean", json={"platforms": []})["cleaned"] == []


@pytest.mark.parametrize("name", ["log", "checkpoint"])
def test_removed_subfolder_is_recreated(daemon: Daemon, code: Path, enough: Path, name: str) -> None:
    id_ = _at_work(daemon, code, enough)
    daemon.kill()
    shutil.rmtree(daemon.data / id_ / name)
    daemon.start()
    _ends_well(daemon, id_, enough)
