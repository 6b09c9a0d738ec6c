"""The private file: its content and its mode."""

from __future__ import annotations

import os
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
from nni_manager.store.folder import Folder
from nni_manager.store.nni import nni_folder
from nni_manager.store.private import Kept

pytestmark = pytest.mark.unit

SECRET, VARIABLE = "a-secret-of-the-bees", "a-variable-of-the-bees"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / private.FILE


def test_private_data_round_trip_without_secrets_in_repr(path: Path) -> None:
    found = Kept(environment={"HOME": VARIABLE}, secrets={"${TOKEN}": SECRET})
    private.replace(path, found)
    assert private.load(path) == found and mode(path) == 0o600
    private.put(path, {"${TOKEN}": "new", "file:/x": "other"})
    assert private.load(path) == Kept(environment={"HOME": VARIABLE}, secrets={"${TOKEN}": "new", "file:/x": "other"})
    private.keep_only(path, ["file:/x"])
    assert private.load(path).secrets == {"file:/x": "other"}
    assert SECRET.encode() not in path.read_bytes()
    assert SECRET not in repr(found) and VARIABLE not in repr(found)


def test_missing_or_empty_private_file_loads_as_empty(path: Path) -> None:
    assert private.load(path) == Kept()
    path.touch()
    assert private.load(path) == Kept()
    private.put(path, {"${TOKEN}": SECRET})
    assert private.load(path) == Kept(secrets={"${TOKEN}": SECRET})


def test_private_file_has_mode_0600_at_every_moment(path: Path) -> None:
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


def test_concurrent_first_writes_both_succeed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training service stores its passwords while a user renews the environment."""
    opened = os.open

    def late(name: Any, flags: int, mode: int = 0o777) -> int:
        monkeypatch.undo()
        private.put(path, {"file:/x": "other"})
        return opened(name, flags, mode)

    monkeypatch.setattr(os, "open", late)
    private.ServiceText(path, "remote").write("a text")
    assert private.load(path).secrets == {"file:/x": "other"}
    assert private.ServiceText(path, "remote").read() == "a text"


def test_private_file_with_wider_mode_is_set_to_0600(path: Path) -> None:
    private.replace(path, Kept(environment={}))
    path.chmod(0o644)
    private.load(path)
    assert mode(path) == 0o600


def _of(monkeypatch: pytest.MonkeyPatch, *owned: Path) -> None:
    """Makes these paths another user's."""

    def shifted(look: Any) -> Any:
        def found(path: Path, **options: Any) -> os.stat_result:
            result = look(path, **options)
            return os.stat_result((*result[:4], result.st_uid + 1, *result[5:])) if path in owned else result

        return found

    monkeypatch.setattr(Path, "lstat", shifted(Path.lstat))
    monkeypatch.setattr(Path, "stat", shifted(Path.stat))


@pytest.mark.parametrize("place", [private.FILE, ""])
def test_private_file_of_another_user_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    private.replace(path, Kept(environment={"PATH": "/home/evil/bin"}, secrets={"${TOKEN}": SECRET}))
    assert private.foreign(path) == ""
    _of(monkeypatch, path.parent / place)
    for call in (
        lambda: private.load(path),
        lambda: private.put(path, {"${TOKEN}": "new"}),
        private.ServiceText(path, "remote").read,
    ):
        with pytest.raises(StoreCorrupt, match=r"belongs to the user with id \d+\. private\.sqlite is not read"):
            call()


def test_private_file_is_read_if_storage_maps_users(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private.replace(path, Kept(secrets={"${TOKEN}": SECRET}))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert private.load(path).secrets == {"${TOKEN}": SECRET}


def test_corrupt_private_file_is_named_and_can_be_replaced(path: Path) -> None:
    path.write_text("something else " * 100)
    with pytest.raises(StoreCorrupt, match=r"private\.sqlite cannot be read"):
        private.load(path)
    private.replace(path, Kept(environment={"A": "1"}))
    assert private.load(path).environment == {"A": "1"}
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(StoreCorrupt, match="is not a file; remove it"):
        private.load(path)


def test_a_folder_that_cannot_be_written_is_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        private.replace(tmp_path / "nowhere" / private.FILE, Kept())


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
def test_another_user_cannot_read_the_private_file() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        path = Path(place) / private.FILE
        private.replace(path, Kept(environment={"HOME": VARIABLE}, secrets={"${TOKEN}": SECRET}))
        command = ["cat", str(path)]
        refused = subprocess.run(
            command, user=65534, group=65534, extra_groups=[], capture_output=True, check=False, timeout=30
        )
        assert refused.returncode != 0 and refused.stdout == b""
