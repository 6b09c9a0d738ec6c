"""The private file: what is in it, who may read it, and how what lay in older databases comes there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable
from nni_manager.store import private
from nni_manager.store.connection import connect, connect_readonly
from nni_manager.store.folder import Folder
from nni_manager.store.nni import nni_folder
from nni_manager.store.private import Kept
from nni_manager.store.upgrade import kept, upgrade
from tests.store import killed_upgrades

pytestmark = pytest.mark.unit

OLD = Path(__file__).with_name("old_databases")
SECRET, VARIABLE = "a-secret-of-the-bees", "a-variable-of-the-bees"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / private.FILE


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An experiment's folder with a database of an earlier version, that has a copy of a still earlier one."""
    return killed_upgrades.make_folder(tmp_path / "old", OLD / "0010.sqlite", SECRET, VARIABLE)


def test_what_is_kept_comes_back_and_no_text_shows_it(path: Path) -> None:
    found = Kept(environment={"HOME": VARIABLE}, secrets={"${TOKEN}": SECRET})
    private.replace(path, found)
    assert private.load(path) == found and mode(path) == 0o600
    private.put(path, {"${TOKEN}": "new", "file:/x": "other"})
    assert private.load(path) == Kept(environment={"HOME": VARIABLE}, secrets={"${TOKEN}": "new", "file:/x": "other"})
    private.keep_only(path, ["file:/x"])
    assert private.load(path).secrets == {"file:/x": "other"}
    assert SECRET.encode() not in path.read_bytes()
    assert SECRET not in repr(found) and VARIABLE not in repr(found)


def test_nothing_is_kept_where_there_is_no_file_or_a_killed_process_made_an_empty_one(path: Path) -> None:
    assert private.load(path) == Kept()
    path.touch()
    assert private.load(path) == Kept()
    private.put(path, {"${TOKEN}": SECRET})
    assert private.load(path) == Kept(secrets={"${TOKEN}": SECRET})


def test_nobody_else_may_read_the_file_at_any_moment(path: Path) -> None:
    seen: set[int] = set()

    def look(frame: FrameType, _: str, __: object) -> Any:
        """At every line of the module."""
        if frame.f_code.co_filename == private.__file__:
            seen.update(mode(one) for one in path.parent.iterdir())
            return look
        return None

    umask, tracing = os.umask(0), sys.gettrace()
    sys.settrace(look)
    try:
        private.replace(path, Kept(environment={}, secrets={"${TOKEN}": SECRET}))
        private.put(path, {"${TOKEN}": "new"})
    finally:
        sys.settrace(tracing)
        os.umask(umask)
    assert seen == {0o600}


def test_two_who_write_the_first_thing_at_a_time_both_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training service that keeps its passwords, and a person who gives an environment anew."""
    opened = os.open

    def late(name: Any, flags: int, mode: int = 0o777) -> int:
        monkeypatch.undo()
        private.put(path, {"file:/x": "other"})
        return opened(name, flags, mode)

    monkeypatch.setattr(os, "open", late)
    private.ServiceText(path, "remote").write("a text")
    assert private.load(path).secrets == {"file:/x": "other"}
    assert private.ServiceText(path, "remote").read() == "a text"


def test_a_copy_that_others_could_read_is_ours_alone_once_it_is_read(path: Path) -> None:
    private.replace(path, Kept(environment={}))
    path.chmod(0o644)
    private.load(path)
    assert mode(path) == 0o600


def test_what_is_no_private_file_is_named_and_can_be_replaced(path: Path) -> None:
    path.write_text("something else " * 100)
    with pytest.raises(StoreCorrupt, match=r"private\.sqlite cannot be read"):
        private.load(path)
    private.replace(path, Kept(environment={"A": "1"}))
    assert private.load(path).environment == {"A": "1"}
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(StoreCorrupt, match="is no file; remove it"):
        private.load(path)


def test_a_folder_that_cannot_be_written_is_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        private.replace(tmp_path / "nowhere" / private.FILE, Kept())


# Older databases


def test_an_upgrade_moves_environment_and_secrets_out_of_the_database_and_of_copies(folder: Folder) -> None:
    upgrade(folder)
    assert private.load(folder.private) == Kept(environment={"PATH": VARIABLE}, secrets={"${TOKEN}": SECRET})
    assert mode(folder.private) == 0o600
    assert killed_upgrades.shown(folder, SECRET, VARIABLE) == []
    assert {one.name for one in folder.database.parent.glob("*.bak")} == {"nni.sqlite.v9.bak", "nni.sqlite.v10.bak"}
    before = folder.private.read_bytes()
    upgrade(folder)
    assert folder.private.read_bytes() == before


@pytest.mark.parametrize("name", sorted(one.name for one in OLD.glob("00*.sqlite") if one.name < "0011"))
def test_every_earlier_database_gives_its_environment(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path / "old")
    folder.create(tmp_path)
    shutil.copy(OLD / name, folder.database)
    upgrade(folder)
    found = private.load(folder.private)
    assert found.environment == {"PATH": "/bin"}
    assert found.secrets == ({"${TOKEN}": "not-a-real-token"} if name >= "0006" else {})


def test_a_copy_that_is_put_back_after_an_upgrade_leaves_what_is_kept_alone(folder: Folder) -> None:
    upgrade(folder)
    shutil.copy(folder.database.with_name("nni.sqlite.v10.bak"), folder.database)
    upgrade(folder)
    assert private.load(folder.private).environment == {"PATH": VARIABLE}


def test_secrets_are_read_of_an_earlier_database_that_nobody_could_write(folder: Folder) -> None:
    with closing(connect_readonly(folder.database)) as connection:
        assert kept(connection, folder).secrets == {"${TOKEN}": SECRET}
    upgrade(folder)
    with closing(connect_readonly(folder.database)) as connection:
        assert kept(connection, folder).secrets == {"${TOKEN}": SECRET}


def test_a_reader_that_stays_keeps_the_old_schema_until_it_is_gone(folder: Folder) -> None:
    with closing(connect(folder.database)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM experiment").fetchone()
        with pytest.raises(StoreUnavailable):
            upgrade(folder)
        reader.execute("COMMIT")
    upgrade(folder)
    assert private.load(folder.private).environment == {"PATH": VARIABLE}
    assert killed_upgrades.shown(folder, SECRET, VARIABLE) == []


def test_an_upgrade_that_is_killed_anywhere_goes_on_from_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.store.killed_upgrades", str(tmp_path), str(OLD / "0010.sqlite")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 50  # so many places


def test_a_folder_of_nni_that_is_taken_over_has_a_private_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "theirs")
    folder.database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(folder.database)) as connection, connection:
        connection.execute(
            "CREATE TABLE ExperimentProfile (params TEXT, id TEXT, execDuration INTEGER, startTime INTEGER,"
            " endTime INTEGER, logDir TEXT, nextSequenceId INTEGER, revision INTEGER)"
        )
        connection.execute(
            "CREATE TABLE TrialJobEvent (timestamp INTEGER, trialJobId TEXT, event TEXT, data TEXT, logPath TEXT,"
            " sequenceId INTEGER, message TEXT, envId TEXT)"
        )
        connection.execute(
            "CREATE TABLE MetricData (timestamp INTEGER, trialJobId TEXT, parameterId TEXT, type TEXT,"
            " sequence INTEGER, data TEXT)"
        )
        params = '{"trialCommand": "true", "trialConcurrency": 1, "trainingService": {"platform": "local"}}'
        connection.execute("INSERT INTO ExperimentProfile VALUES (?, 'theirs', 0, 1, 2, '/x', 0, 0)", (params,))
    nni_folder.adopt(folder, environment={"HOME": VARIABLE}, interpreter="/usr/bin/python3")
    assert private.load(folder.private).environment == {"HOME": VARIABLE} and mode(folder.private) == 0o600
    assert VARIABLE.encode() not in folder.database.read_bytes()


@pytest.mark.machines
def test_another_user_reads_nothing_of_it_in_folders_that_were_opened(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        folder = killed_upgrades.make_folder(Path(place) / "old", OLD / "0010.sqlite", SECRET, VARIABLE)
        for path in (folder.path, folder.database.parent):
            path.chmod(0o755)
        command = ["cat", str(folder.database), *map(str, folder.database.parent.glob("*.bak")), str(folder.private)]
        before = as_another_user(command)
        assert SECRET.encode() in before and VARIABLE.encode() in before, "it lay in a database that others may read"
        upgrade(folder)
        assert SECRET.encode() not in as_another_user(command) and VARIABLE.encode() not in as_another_user(command)


def as_another_user(command: list[str]) -> bytes:
    """What a command of another user prints."""
    return subprocess.run(
        command, user=65534, group=65534, extra_groups=[], capture_output=True, check=False, timeout=30
    ).stdout
