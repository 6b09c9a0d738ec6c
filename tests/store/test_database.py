"""The writer thread: order, shared commits, faults that end by themselves, closing, and death."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nni_manager.app import index_file
from nni_manager.domain.errors import StoreCorrupt, StoreUnavailable
from nni_manager.store import database as module
from nni_manager.store import migrate, readers
from nni_manager.store.connection import Connection, connect
from nni_manager.store.database import Database
from nni_manager.store.index import stored_identity

pytestmark = pytest.mark.timeout(20)

ROOT = Path(__file__).parents[2]


def insert(number: int) -> Callable[[Connection], int]:
    def write(connection: Connection) -> int:
        connection.execute("INSERT INTO numbers (number) VALUES (?)", (number,))
        return number

    return write


def numbers(connection: Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY rowid")]


def look(path: Path) -> list[int]:
    """What another connection sees."""
    connection = sqlite3.connect(path)
    try:
        return numbers(connection)
    finally:
        connection.close()


class Troubles:
    """Hears of every change of `trouble`."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.heard.set()

    async def next(self) -> None:
        async with asyncio.timeout(30):
            await self.heard.wait()
        self.heard.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make(tmp_path / "numbers.sqlite")


def make(path: Path) -> Path:
    connection = connect(path)
    connection.execute("CREATE TABLE numbers (number INTEGER UNIQUE, filling BLOB)")
    connection.close()
    return path


@pytest.fixture
async def troubles() -> Troubles:
    return Troubles()


@pytest.fixture
async def database(file: Path, troubles: Troubles) -> AsyncIterator[Database]:
    database = Database(file, on_trouble=troubles)
    yield database
    await database.close()


class Gate:
    """A write that holds the writer thread until it is opened, so that what is queued meanwhile shares one commit."""

    def __init__(self, database: Database) -> None:
        self._reached, self._open = threading.Event(), threading.Event()
        self.statements: list[str] = []
        self.done = database.start_write(self._hold)

    def _hold(self, connection: Connection) -> None:
        connection.set_trace_callback(self.statements.append)
        self._reached.set()
        assert self._open.wait(10)

    async def reached(self) -> Gate:
        assert await asyncio.to_thread(self._reached.wait, 10)
        return self

    async def open(self) -> None:
        self._open.set()
        await self.done


@pytest.mark.unit
async def test_writes_are_carried_out_in_the_order_they_were_started(database: Database) -> None:
    answers = [database.start_write(insert(number)) for number in range(600)]
    database.post(insert(600))
    assert await asyncio.gather(*answers) == list(range(600))
    await database.write(lambda c: None)
    assert await database.read(numbers) == list(range(601))


@pytest.mark.unit
async def test_queued_writes_share_a_commit(database: Database) -> None:
    gate = await Gate(database).reached()
    answers = [database.start_write(insert(number)) for number in range(50)]
    await gate.open()
    await asyncio.gather(*answers)
    assert gate.statements.count("COMMIT") == 2
    assert gate.statements.count("BEGIN IMMEDIATE") == 1  # the first one came before we listened


@pytest.mark.unit
async def test_failing_function_is_rolled_back_alone(database: Database) -> None:
    def fail(connection: Connection) -> None:
        insert(2)(connection)
        raise ValueError("by mistake")

    gate = await Gate(database).reached()
    answers = [database.start_write(f) for f in (insert(1), fail, insert(1), insert(3))]
    await gate.open()
    first, second, third, last = await asyncio.gather(*answers, return_exceptions=True)
    assert (first, last) == (1, 3)
    assert isinstance(second, ValueError) and isinstance(third, sqlite3.IntegrityError)
    assert await database.read(numbers) == [1, 3]
    assert database.trouble == ""


@pytest.mark.unit
async def test_result_is_delivered_after_the_commit(database: Database, file: Path) -> None:
    gate = await Gate(database).reached()
    early = database.start_write(insert(1))
    late = Gate(database)
    await gate.open()
    await late.reached()
    assert not early.done() and look(file) == []
    await late.open()
    assert await early == 1 and look(file) == [1]


@pytest.mark.unit
async def test_cancelled_caller_does_not_cancel_the_write(database: Database) -> None:
    gate = await Gate(database).reached()
    answer = asyncio.ensure_future(database.write(insert(1)))
    await asyncio.sleep(0)  # it is queued
    answer.cancel()
    await gate.open()
    await database.write(insert(2))
    assert answer.cancelled()
    assert await database.read(numbers) == [1, 2]


@pytest.mark.unit
async def test_a_posted_write_that_fails_is_logged(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.post(lambda c: c.execute("INSERT INTO nowhere VALUES (1)"))
    await database.write(insert(1))
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "no such table: nowhere" in str(record.exc_info)


@pytest.mark.unit
async def test_another_process_locks_the_file_for_a_while(database: Database, file: Path, troubles: Troubles) -> None:
    await database.write(insert(0))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers = [database.start_write(insert(number)) for number in range(1, 10)]
    await troubles.next()
    assert database.trouble.startswith(f"the database {file} is locked by another process")
    assert not any(answer.done() for answer in answers)
    assert await database.read(numbers) == [0]
    other.execute("ROLLBACK")
    other.close()
    assert await asyncio.gather(*answers) == list(range(1, 10))
    await troubles.next()
    assert (database.trouble, troubles.count) == ("", 2)
    assert look(file) == list(range(10))


@pytest.mark.unit
async def test_impatient_write_is_refused_and_not_stored(database: Database, file: Path, troubles: Troubles) -> None:
    assert await database.try_write(insert(0)) == 0
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    patient = [database.start_write(insert(1))]
    refused = [asyncio.ensure_future(database.try_write(insert(number))) for number in (7, 8)]
    await asyncio.sleep(0)  # they are queued
    patient.append(database.start_write(insert(2)))
    await troubles.next()
    for attempt in (*refused, database.try_write(insert(9))):
        with pytest.raises(StoreUnavailable, match=r"is locked by another process .*nothing was changed, try again"):
            await attempt
    other.execute("ROLLBACK")
    other.close()
    assert await asyncio.gather(*patient) == [1, 2]
    await troubles.next()
    assert await database.try_write(insert(3)) == 3
    assert look(file) == [0, 1, 2, 3]


@pytest.mark.unit
async def test_trouble_ends_without_pending_writes(database: Database, file: Path, troubles: Troubles) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        await database.try_write(insert(1))
    await troubles.next()
    other.execute("ROLLBACK")
    other.close()
    await troubles.next()
    assert file.with_name(f"{file.name}-wal").stat().st_size > 0, "only a write shows that it can be written"
    assert (database.trouble, look(file)) == ("", [])


@pytest.mark.unit
async def test_a_connection_that_was_opened_read_only_is_not_kept(
    database: Database, file: Path, troubles: Troubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite opens a file without write permission for reading and never tries again on that connection."""
    writable = threading.Event()

    def open_file(path: Path, **_options: bool) -> Connection:
        if writable.is_set():
            return connect(path)
        return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)

    monkeypatch.setattr(module, "connect", open_file)
    answer = database.start_write(insert(1))
    await troubles.next()
    assert "read-only" in database.trouble and not answer.done()
    writable.set()
    assert await answer == 1
    assert look(file) == [1]


@pytest.mark.unit
async def test_reader_of_a_read_only_time_does_not_block_writes(
    database: Database, file: Path, troubles: Troubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a reader has the write-ahead log's index open for reading, which all connections of a process share."""
    died = "import os, sys, sqlite3; c = sqlite3.connect(sys.argv[1], isolation_level=None)"
    died += "; c.execute('INSERT INTO numbers (number) VALUES (7)'); os._exit(0)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", died, file)  # it leaves log and index
    assert await process.wait() == 0

    def open_file(path: Path, **_options: bool) -> Connection:
        uri = f"{path.as_uri()}?mode=ro&readonly_shm=1"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)

    monkeypatch.setattr(readers, "connect_readonly", open_file)
    assert await database.read(numbers) == [7]
    monkeypatch.undo()
    assert await database.write(insert(1)) == 1
    assert look(file) == [7, 1]


@pytest.mark.unit
async def test_the_folder_comes_back(tmp_path: Path, troubles: Troubles) -> None:
    database = Database(tmp_path / "away" / "numbers.sqlite", on_trouble=troubles)
    answer = database.start_write(insert(1))
    await troubles.next()
    assert "cannot be opened" in database.trouble
    (tmp_path / "here").mkdir()
    make(tmp_path / "here" / "numbers.sqlite")
    (tmp_path / "here").rename(tmp_path / "away")
    assert await answer == 1
    await database.close()


@pytest.mark.unit
async def test_invalid_database_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    path.write_bytes(b"something else " * 1000)
    database = Database(path)
    for refused in (database.write(insert(1)), database.read(numbers)):
        with pytest.raises(StoreCorrupt, match=r"cannot be read .*restore it from a backup"):
            await refused
    await database.close()


@pytest.mark.parametrize("fate", ["removed", "exchanged"])
async def test_removed_database_is_not_written(database: Database, fate: str) -> None:
    """SQLite itself would not mind, and what it stores could never be read again."""
    await database.write(insert(1))
    copy = database.path.with_name("copy")
    copy.write_bytes(database.path.read_bytes())
    database.path.unlink()
    if fate == "exchanged":
        copy.rename(database.path)
    for write in (database.write, database.try_write):
        with pytest.raises(StoreCorrupt, match="was removed, replaced or emptied while it was open"):
            await write(insert(2))
    assert database.path.exists() == (fate == "exchanged"), "none was made in its place"


async def test_read_of_a_removed_database_says_so(database: Database) -> None:
    """StoreCorrupt, not StoreUnavailable: it ends the experiment, whether a read or a write finds it first."""
    await database.write(insert(1))
    database.path.unlink()
    with pytest.raises(StoreCorrupt, match="was removed, replaced or emptied while it was open"):
        await database.read(numbers)


@pytest.mark.unit
async def test_a_damaged_page_met_while_writing(database: Database) -> None:
    def meet(connection: Connection) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT  # type: ignore[misc]
        raise error

    gate = await Gate(database).reached()
    refused, fine = database.start_write(meet), database.start_write(insert(1))
    await gate.open()
    with pytest.raises(StoreCorrupt):
        await refused
    assert await fine == 1


@pytest.mark.unit
async def test_read_is_retried_after_an_input_error(database: Database) -> None:
    """Of which the first may be about a log that was just removed; the second is the disk's."""
    await database.write(insert(1))
    errors, met = [failure(sqlite3.SQLITE_IOERR)], []

    def read(connection: Connection) -> list[int]:
        met.append(connection)
        if errors:
            raise errors.pop()
        return numbers(connection)

    assert await database.read(read) == [1]
    assert len(set(map(id, met))) == 2, "with a fresh connection"
    errors = [failure(sqlite3.SQLITE_IOERR), failure(sqlite3.SQLITE_IOERR)]
    with pytest.raises(StoreUnavailable, match="input/output error"):
        await database.read(read)
    errors = [failure(sqlite3.SQLITE_CORRUPT)]
    with pytest.raises(StoreCorrupt):
        await database.read(read)
    assert await database.read(read) == [1]


def failure(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


async def test_readers_cannot_write(database: Database) -> None:
    await database.write(insert(1))
    with pytest.raises(StoreUnavailable):
        await database.read(insert(2))
    assert await database.read(numbers) == [1]


@pytest.mark.unit
async def test_close_commits_queued_writes(file: Path) -> None:
    database = Database(file)
    answers = [database.start_write(insert(number)) for number in range(1000)]
    await database.close()
    await database.close()
    assert await asyncio.gather(*answers) == list(range(1000))
    assert look(file) == list(range(1000))
    with pytest.raises(StoreUnavailable, match="is closed"):
        await database.write(insert(1000))


@pytest.mark.unit
async def test_closing_does_not_wait_for_the_end_of_trouble(file: Path, troubles: Troubles) -> None:
    database = Database(file, on_trouble=troubles)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answer = database.start_write(insert(1))
    await troubles.next()
    await database.close()
    other.close()
    with pytest.raises(StoreUnavailable, match="is locked by another process"):
        await answer
    assert look(file) == []


@pytest.mark.unit
async def test_a_reader_that_comes_back_while_all_are_closed_is_closed(file: Path) -> None:
    database = Database(file)
    opened: list[Connection] = []

    def close_meanwhile(connection: Connection) -> None:
        opened.append(connection)
        database._readers.close()

    await database.read(close_meanwhile)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
    await database.close()


async def test_unused_database_is_closed_quietly(tmp_path: Path) -> None:
    await Database(tmp_path / "nothing.sqlite").close()
    assert os.listdir(tmp_path) == []


@pytest.mark.unit
async def test_folder_names_can_have_any_characters(tmp_path: Path) -> None:
    folder = tmp_path / "50% of ä?#&x=1"
    folder.mkdir()
    database = Database(make(folder / "numbers.sqlite"))
    await database.write(insert(1))
    assert await database.read(numbers) == [1]
    await database.close()


# ------------------------------------------------------------------------------------------------ disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.mark.machines
@pytest.mark.acceptance
async def test_a_full_disk(small_disk: Path, troubles: Troubles) -> None:
    path = make(small_disk / "numbers.sqlite")
    database = Database(path, on_trouble=troubles)
    await database.write(insert(0))
    ballast = small_disk / "ballast"
    _fill(ballast)
    filling = random.Random(1).randbytes(30_000)
    answers = [database.start_write(lambda c, n=n: _insert_big(c, n, filling)) for n in range(1, 5)]
    await troubles.next()
    assert str(path) in database.trouble and "disk" in database.trouble
    assert not any(answer.done() for answer in answers)
    ballast.unlink()
    assert await asyncio.gather(*answers) == [1, 2, 3, 4]
    await database.close()
    assert look(path) == [0, 1, 2, 3, 4]
    assert database.trouble == ""


@pytest.mark.machines
@pytest.mark.acceptance
async def test_full_disk_stays_full_after_all_writes_were_refused(
    small_disk: Path, troubles: Troubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(make(small_disk / "numbers.sqlite"), on_trouble=troubles)
    await database.write(insert(0))
    ballast, tries, tried = small_disk / "ballast", 0, threading.Event()
    run = module.run

    def count(*arguments: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 4:
            tried.set()
        run(*arguments)

    _fill(ballast)
    monkeypatch.setattr(module, "run", count)
    with pytest.raises(StoreUnavailable):
        await database.try_write(lambda c: _insert_big(c, 1, bytes(30_000)))
    await troubles.next()
    assert await asyncio.to_thread(tried.wait, 10)
    assert "disk" in database.trouble
    ballast.unlink()
    await troubles.next()
    assert (database.trouble, await database.try_write(insert(2))) == ("", 2)
    await database.close()


@pytest.mark.machines
@pytest.mark.acceptance
async def test_a_disk_that_is_read_only_for_a_while(small_disk: Path, troubles: Troubles) -> None:
    path = make(small_disk / "numbers.sqlite")
    await remount(small_disk, "ro")
    database = Database(path, on_trouble=troubles)
    answer = database.start_write(insert(1))
    await troubles.next()
    assert str(path) in database.trouble and not answer.done()
    await remount(small_disk, "rw")
    assert await answer == 1
    await database.close()
    assert look(path) == [1]


async def remount(disk: Path, mode: str) -> None:
    process = await asyncio.create_subprocess_exec("mount", "-o", f"remount,{mode}", str(disk))
    assert await process.wait() == 0


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def _insert_big(connection: Connection, number: int, filling: bytes) -> int:
    connection.execute("INSERT INTO numbers VALUES (?, ?)", (number, filling))
    return number


# ------------------------------------------------------------------------------------------------ death

_WRITER = """
import asyncio, sys
from pathlib import Path
from typing import Any
from nni_manager.store.database import Database

async def main():
    database = Database(Path(sys.argv[1]))
    number = int(sys.argv[2])
    async def one(number):
        await database.write(lambda c: c.execute("INSERT INTO numbers (number) VALUES (?)", (number,)) and None)
        print(number, flush=True)
    while True:
        await asyncio.gather(*(one(number + n) for n in range(7)))
        number += 7

asyncio.run(main())
"""


@pytest.mark.acceptance
def test_killed_writer_loses_no_acknowledged_write(file: Path) -> None:
    stored = 0
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(file), str(stored)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        heard = [child.stdout.readline() for _ in range(random.randint(1, 400))]
        child.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in (*heard, *child.stdout.read().splitlines())]
        child.stdout.close()
        child.wait()
        found = look(file)
        assert found == list(range(len(found))), "a hole: something later was stored and this was not"
        assert acknowledged[-1] < len(found)
        stored = len(found)
        connection = sqlite3.connect(file)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
    assert stored > 6


#: Runs as a user whom modes hold back: reads while files are read-only, then writes within 3 s of their modes' return.
_READ_ONLY_FOR_A_WHILE = """
import asyncio.unix_events, concurrent.futures.thread, encodings.idna, os, sys, time
from pathlib import Path
from nni_manager.store.connection import connect
from nni_manager.store.database import Database

path, names, pause_s = Path(sys.argv[1]), sys.argv[2].split(), float(sys.argv[3])
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
if os.fork() == 0:  # killed: its write-ahead log stays
    connect(path).execute("CREATE TABLE t (x)")
    if "clean" in names:
        connect(path).close()
    os._exit(0)
os.wait()
if "clean" in names:
    connect(path).close()
files = [path.parent / name for name in names if name != "clean"]

async def reading(database):
    while True:
        await database.read(lambda c: (c.execute("SELECT count(*) FROM t").fetchall(), time.sleep(pause_s)))
        await asyncio.sleep(0)

async def main():
    for file in files:
        file.chmod(file.stat().st_mode & ~0o222)
    database = Database(path)
    tasks = []
    for _ in range(3):
        tasks.append(asyncio.create_task(reading(database)))
        await asyncio.sleep(pause_s / 3)
    writing = database.start_write(lambda c: c.execute("INSERT INTO t VALUES (1)"))
    await asyncio.sleep(0.5)
    assert database.trouble, "it is held"
    for file in files:
        file.chmod(file.stat().st_mode | 0o200)
    await asyncio.wait_for(writing, 3)
    assert not database.trouble
    print("written")
    os._exit(0)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("names", "pause_s"),
    [("clean x.sqlite", 0.01), ("x.sqlite", 0.01), ("x.sqlite x.sqlite-shm x.sqlite-wal", 0.2)],
    ids=["files made meanwhile", "database", "overlapping reads"],
)
def test_reads_while_read_only_do_not_block_later_writes(names: str, pause_s: float) -> None:
    with tempfile.TemporaryDirectory() as folder:  # `tmp_path` is closed to other users
        os.chmod(folder, 0o777)
        command = [sys.executable, "-c", _READ_ONLY_FOR_A_WHILE, f"{folder}/x.sqlite", names, str(pause_s)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)
    assert done.stdout == "written\n", done.stderr


async def test_durable_database_syncs_each_commit(tmp_path: Path) -> None:
    database = Database(tmp_path / "durable.sqlite", is_durable=True)
    assert await database.write(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,), "FULL"
    await database.close()


@pytest.mark.parametrize("how", ["removed", "emptied", "replaced"])
async def test_lost_file_is_restored_with_its_content(tmp_path: Path, how: str) -> None:
    path = tmp_path / "index.sqlite"
    migrate.migrate(path, "index")
    database = Database(path, restore=partial(index_file.restore, path))
    await database.write(lambda c: stored_identity.put(c, "0123abcd"))
    await database.read(stored_identity.load)  # a reader that stays open
    if how == "emptied":
        os.truncate(path, 0)
    else:
        for suffix in ("", "-wal", "-shm"):
            os.unlink(f"{path}{suffix}")
    if how == "replaced":
        migrate.migrate(path, "index")
    found, _ = await database.read(stored_identity.load)
    assert found == ("0123abcd" if how != "emptied" else found)
    await database.write(lambda c: stored_identity.put(c, "4567cdef"))
    await database.close()
    with closing(sqlite3.connect(path)) as connection:
        assert stored_identity.load(connection)[0] == "4567cdef"
    is_kept = any(name.startswith("index.sqlite.corrupt-") for name in os.listdir(tmp_path))
    assert is_kept or how != "replaced"
