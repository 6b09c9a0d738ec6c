"""Jobs with code that is sent as an archive: accepted at once, unpacked once, a copy for each."""

from __future__ import annotations

import errno
import gzip
import io
import os
import signal
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from keeper_client_for_tests import TIMEOUT_S, Client, KeeperProcess, RefusedError

from trial_runner import processes, protocol
from trial_runner.keeper.code import copying

pytestmark = pytest.mark.acceptance

BYTES = 2_000_000


@pytest.fixture
def archive(keeper: KeeperProcess) -> Path:
    """An archive of three files; one cannot be compressed."""
    path = keeper.directory / "experiment" / "code.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as packed:
        folder = tarfile.TarInfo("sub")
        folder.type = tarfile.DIRTYPE
        packed.addfile(folder)
        for name, data, mode in (("a.txt", b"first\n", 0o644), ("sub/run.sh", b"echo ran\n", 0o755)):
            _add(packed, name, data, mode)
        _add(packed, "big.bin", os.urandom(BYTES), 0o600)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        packed.addfile(link)
    return path


def _add(packed: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    packed.addfile(entry, io.BytesIO(data))


def _code(keeper: KeeperProcess, archive: Path, name: str) -> dict[str, Any]:
    folder = str(keeper.attempt(name) / protocol.CODE_FOLDER)
    return {"code": {"archive": str(archive), "folder": folder}, "directory": folder}


def _until(client: Client, event: str, name: str, **fields: Any) -> dict[str, Any]:
    while True:
        message = client.next_message()
        is_it = message.get("event") == event and message["name"] == name
        if is_it and all(message["job"][field] == value for field, value in fields.items()):
            return message


def test_a_job_is_accepted_at_once_and_runs_in_a_copy_of_its_own(
    keeper: KeeperProcess, client: Client, archive: Path
) -> None:
    command = "cat link; sh sub/run.sh; test -x sub/run.sh && wc -c < big.bin; echo more >> a.txt"
    for name in ("one", "two", "three"):
        told = keeper.spawn(client, name, command, **_code(keeper, archive, name))
        assert (told["state"], told["pid"]) == (protocol.PREPARING, None)
        assert keeper.spawn(client, name, command)["state"] in (protocol.PREPARING, protocol.RUNNING, protocol.ENDED)
    listed = client.ask("list")["jobs"]["two"]
    assert listed["state"] != protocol.PREPARING or listed["code"]["step"] in ("unpacked", "copied")
    heard = client.until_ended("one", "two", "three")
    for name in ("one", "two", "three"):
        assert heard.jobs[name]["exit_code"] == 0
        assert keeper.read(client, name, "stdout") == f"first\nran\n{BYTES}\n".encode()
        assert (keeper.attempt(name) / "code" / "a.txt").read_text() == "first\nmore\n"
    tree = Path(f"{archive}{protocol.CODE_TREE}")
    assert (tree / "a.txt").read_text() == "first\n"
    assert {*archive.parent.iterdir()} == {archive, tree}


def test_code_that_was_unpacked_is_not_unpacked_again(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    tree = Path(f"{archive}{protocol.CODE_TREE}")
    tree.mkdir()
    (tree / "a.txt").write_text("from the tree\n")
    keeper.spawn(client, "job", "cat a.txt", **_code(keeper, archive, "job"))
    assert _until(client, "changed", "job", state=protocol.RUNNING)["job"]["pid"] > 0
    client.until_ended("job")
    assert keeper.read(client, "job", "stdout") == b"from the tree\n"


def test_an_archive_that_is_damaged_or_gone_is_asked_for_again(
    keeper: KeeperProcess, client: Client, archive: Path
) -> None:
    archive.write_bytes(gzip.compress(b"no tar")[:-4])
    for name, sentence in (("one", "is damaged"), ("two", "does not exist: send it again")):
        keeper.spawn(client, name, "true", **_code(keeper, archive, name))
        refused = _until(client, "refused", name)
        assert refused["kind"] == protocol.UNAVAILABLE and sentence in refused["message"]
        assert client.ask("list")["jobs"] == {} and not keeper.attempt(name).exists()
    assert [*archive.parent.iterdir()] == []


def test_a_job_that_is_to_end_before_it_runs_never_runs(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    spawn = keeper.request("job", "touch ran", **_code(keeper, archive, "job"))
    client.send_at_once(("spawn", spawn), ("signal", {"name": "job", "grace_s": 1}))
    ended = client.until_ended("job").jobs["job"]
    assert (ended["state"], ended["exit_code"], ended["signal"]) == (protocol.ENDED, None, signal.SIGTERM)
    assert client.ask("follow", jobs={"job": {}}) == {"jobs": {}, "unknown": ["job"]}
    keeper.spawn(client, "other", "true", **_code(keeper, archive, "other"))
    client.until_ended("other")
    assert not (keeper.attempt("job") / "code" / "ran").exists()


def test_accepted_job_starts_without_a_connection(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    keeper.spawn(client, "job", "echo 1 > $NNI_OUTBOX", **_code(keeper, archive, "job"))
    client.close()
    again = keeper.connect()
    assert again.ask("follow", jobs={"job": {}})["unknown"] == []
    assert again.until_ended("job").lines("job") == ["1"]


def test_a_bad_request_is_refused_at_once(keeper: KeeperProcess, client: Client) -> None:
    with pytest.raises(RefusedError, match="archive"):
        keeper.spawn(client, "job", "true", code={"folder": "/x"})
    assert client.ask("list")["jobs"] == {}


def test_copying_ends_with_its_keeper(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    """The next keeper has it done again in the same place."""
    child = _copying(keeper, client, archive)
    keeper.kill()
    child.wait(TIMEOUT_S)


def test_folder_is_removed_after_copying_has_ended(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    child = _copying(keeper, client, archive)
    client.ask("remove", folder=str(keeper.attempt("job")))
    assert not child.is_running() and not keeper.attempt("job").exists()
    refused = _until(client, "refused", "job")
    assert refused["kind"] == protocol.UNAVAILABLE and "is being removed" in refused["message"]


def test_queued_copy_states_its_step(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    _copying(keeper, client, archive)
    for name in ("two", "three"):
        keeper.spawn(client, name, "true", **_code(keeper, archive, name))
    told = client.ask("list")["jobs"]["three"]["code"]
    assert (told["step"], told["done_bytes"]) == ("copied", 0) and told["size_bytes"] > BYTES
    for name in ("job", "two", "three"):
        client.ask("remove", folder=str(keeper.attempt(name)))


def test_code_removed_during_unpacking_stays_removed(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as packed:
        _add(packed, "zeros", bytes(300_000_000), 0o600)
    keeper.spawn(client, "job", "true", **_code(keeper, archive, "job"))
    child = _child(keeper)
    child.suspend()
    client.ask("signal", name="job", grace_s=1)
    tree = Path(f"{archive}{protocol.CODE_TREE}")
    for path in (archive, tree):
        client.ask("remove", folder=str(path))
    with suppress(psutil.NoSuchProcess):
        child.resume()
    child.wait(TIMEOUT_S)
    assert [*archive.parent.iterdir()] == []


def test_requests_are_answered_while_a_folder_is_removed(keeper: KeeperProcess, client: Client, archive: Path) -> None:
    """For example of many files: other requests do not wait for it, and its end is answered."""
    folder = archive.parent / "large"
    folder.mkdir()
    for number in range(30_000):
        os.link(archive, folder / str(number))
    asked, beside = client.send("remove", folder=str(folder)), client.send("list")
    assert client.next_message()["id"] == beside, "it is not held up by what was asked before"
    child = _child(keeper)
    child.suspend()
    keeper.spawn(client, "job", "exit 3")
    assert client.until_ended("job").jobs["job"]["exit_code"] == 3
    assert client.ask("list")["jobs"].keys() == {"job"} and folder.exists()
    child.resume()
    while (told := client.next_message()).get("id") != asked:
        pass
    assert told == {"id": asked, "result": {}} and not folder.exists()


@pytest.mark.parametrize("shares", [True, False])
def test_copies_share_blocks_if_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: bool) -> None:
    asked: list[int] = []

    def clone(target: int, request: int, source: int) -> None:
        asked.append(request)
        if not shares:
            raise OSError(errno.EOPNOTSUPP, "no clones here")
        os.write(target, b"cloned")

    monkeypatch.setattr(copying.fcntl, "ioctl", clone)
    (tmp_path / "code").mkdir()
    for name in ("a", "b"):
        (tmp_path / "code" / name).write_text("copied")
    copying.Copies(lambda _: None).copy(str(tmp_path / "code"), str(tmp_path / "copy"))
    assert {path.read_text() for path in (tmp_path / "copy").iterdir()} == {"cloned" if shares else "copied"}
    assert asked == [0x40049409] * (2 if shares else 1), "one that cannot is asked once"


def _copying(keeper: KeeperProcess, client: Client, archive: Path) -> psutil.Process:
    """The process that copies the code of a job, and does not get on."""
    tree = Path(f"{archive}{protocol.CODE_TREE}")
    tree.mkdir()
    os.mkfifo(tree / "held")  # until there is a writer
    keeper.spawn(client, "job", "true", **_code(keeper, archive, "job"))
    return _child(keeper)


def _child(keeper: KeeperProcess) -> psutil.Process:
    """At once: it is to be stopped in the midst of its work, and psutil looks through all processes."""
    assert keeper.process is not None
    deadline = time.monotonic() + TIMEOUT_S
    while not (children := processes.children(keeper.process.pid)):
        assert time.monotonic() < deadline
    return psutil.Process(children[0])
