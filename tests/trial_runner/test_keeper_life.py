"""The keeper as a process: one per directory, hard to end by accident, easy to reach, gone when not needed."""

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import zipapp
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from keeper_client_for_tests import ROOT, TIMEOUT_S, KeeperProcess, RefusedError, is_alive, keeper_directory

from trial_runner import protocol

pytestmark = pytest.mark.acceptance


@pytest.fixture
def keeper() -> Iterator[KeeperProcess]:
    with keeper_directory() as keeper:
        yield keeper


@pytest.fixture
def running(keeper: KeeperProcess) -> KeeperProcess:
    assert keeper.start() == b"ready\n"
    return keeper


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """What is copied to other machines."""
    package = tmp_path / "source" / "trial_runner"
    source = ROOT / "trial_runner"
    for path in [*source.glob("*.py"), *(source / "keeper").rglob("*.py"), *(source / "wire").rglob("*.py")]:
        copy = package / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    zipapp.create_archive(tmp_path / "source", tmp_path / "keeper.pyz", main="trial_runner.keeper.__main__:main")
    return tmp_path / "keeper.pyz"


def test_hello_names_version_process_and_boot(running: KeeperProcess) -> None:
    assert running.process is not None
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    expected = {"version": protocol.VERSION, "pid": running.process.pid, "boot_id": boot_id}
    assert running.connect().ask("hello") == expected


def test_second_keeper_of_directory_exits(running: KeeperProcess) -> None:
    client = running.connect()
    first = running.process
    assert running.start() == b"ready\n", "a keeper listens, though not this one"
    assert running.wait() == 0
    assert "Another keeper already serves" in (running.directory / "keeper.err").read_text()
    running.process = first
    assert first is not None
    assert client.ask("hello")["pid"] == first.pid


def test_files_and_socket_are_the_user_s_alone(running: KeeperProcess) -> None:
    running.spawn(running.connect(), "job", "exit 0")
    assert running.socket_path.stat().st_mode & 0o777 == 0o600
    for path in [running.directory / "keeper", *(running.directory / "keeper").rglob("*"), running.attempt("job")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_keeper_ends_without_connections_and_jobs(running: KeeperProcess) -> None:
    client = running.connect()
    running.spawn(client, "job", "exec sleep 1000")
    client.ask("signal", name="job", grace_s=0)
    client.until_ended("job")
    client.close()
    assert running.wait() == 0
    assert not running.socket_path.exists()


def test_keeper_ends_after_its_last_job(running: KeeperProcess) -> None:
    client = running.connect()
    running.attempt("job").mkdir(parents=True)
    os.mkfifo(running.attempt("job") / "gate")
    running.spawn(client, "job", "read line < $D/gate; exit 5")
    client.close()
    assert running.process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(1.5)  # longer than it lingers
    (running.attempt("job") / "gate").write_text("go\n")
    assert running.wait() == 0
    assert '"exit_code": 5' in running.state_file("job").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_terminal_signals_do_not_reach_the_keeper(running: KeeperProcess, number: int) -> None:
    client = running.connect()
    running.spawn(client, "job", "exec sleep 1000")
    assert running.process is not None
    running.process.send_signal(number)
    assert client.ask("list")["jobs"]["job"]["state"] == protocol.RUNNING
    assert os.getsid(running.process.pid) == running.process.pid


def test_a_second_connection_replaces_the_first(running: KeeperProcess) -> None:
    first, second = running.connect(), running.connect()
    second.ask("hello")
    with pytest.raises(EOFError):
        first.next_message()


def test_a_dead_socket_is_replaced(running: KeeperProcess) -> None:
    running.kill()
    assert running.socket_path.exists()
    assert running.start() == b"ready\n"
    assert running.process is not None
    assert running.connect().ask("hello")["pid"] == running.process.pid


def test_removed_socket_is_recreated_on_next_start(running: KeeperProcess) -> None:
    client = running.connect()
    pid = client.ask("hello")["pid"]
    first = running.process
    running.socket_path.unlink()
    assert running.start() == b""
    assert running.wait() == 0
    running.process = first
    client.ask("hello")  # a turn of its loop: the signal was sent before
    assert running.connect().ask("hello")["pid"] == pid


def _raw(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        _raw(b"no json"),
        _raw(b"[]"),
        _raw(b'"text"'),
        _raw(b"\xff\xfe"),
        _raw(b"[" * 100000),
        struct.pack(">I", protocol.MAX_FRAME + 1),
    ],
)
def test_invalid_frame_ends_the_connection_only(running: KeeperProcess, data: bytes) -> None:
    client = running.connect()
    running.spawn(client, "job", "exec sleep 60")  # without one it would soon end, too
    client.socket.sendall(data)
    answer = client.next_message()
    assert (answer["id"], answer["error"]["kind"]) == (None, protocol.INVALID)
    with pytest.raises(EOFError):
        client.next_message()
    assert running.connect().ask("hello")["version"] == protocol.VERSION


@pytest.mark.parametrize("verb", ["bogus", None, 7, ["hello"], {"a": 1}])
def test_an_unknown_verb_is_answered(running: KeeperProcess, verb: Any) -> None:
    client = running.connect()
    with pytest.raises(RefusedError, match="use one of") as caught:
        client.ask(verb)
    assert caught.value.kind == protocol.INVALID
    assert client.ask("list") == {"jobs": {}}


def test_partial_message_is_accepted_at_any_time(running: KeeperProcess) -> None:
    client = running.connect()
    frame = protocol.encode({"verb": "hello", "id": 99})
    for index in range(len(frame)):
        client.socket.sendall(frame[index : index + 1])
    assert client.next_message()["id"] == 99


@pytest.mark.true_start  # a fork has the memory of what the server has imported
def test_peer_that_never_reads_is_paused(running: KeeperProcess) -> None:
    """Its answers would fill the memory."""
    client = running.connect()
    running.attempt("job").mkdir(parents=True)
    (running.attempt("job") / "stdout").write_bytes(bytes(1 << 20))
    client.socket.settimeout(0.5)
    request = protocol.encode(
        {"verb": "read", "id": 1, "attempt_directory": str(running.attempt("job")), "file": "stdout"}
    )
    with pytest.raises(TimeoutError):
        for _ in range(100000):
            client.socket.sendall(request)
    assert running.process is not None
    pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 100_000_000
    client.close()
    assert running.connect().ask("hello")["version"] == protocol.VERSION


def test_uncreatable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = _run("serve", "--directory", str(tmp_path / "file" / "keeper"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"The keeper of {tmp_path}/file/keeper cannot run: Not a directory")
    assert "Traceback" not in done.stderr


def test_overlong_socket_path_is_reported(tmp_path: Path) -> None:
    done = _run("serve", "--directory", str(tmp_path), "--socket", "/tmp/" + "x" * 110)
    assert done.returncode == 1
    assert "too long" in done.stderr


def test_long_directory_gets_socket_elsewhere(keeper: KeeperProcess) -> None:
    directory = keeper.directory / ("d" * 90) / ("e" * 90)
    with _Attached("-m", "trial_runner.keeper", "attach", "--directory", str(directory)) as attached:
        assert attached.ask("hello")["version"] == protocol.VERSION


def test_attach_starts_a_keeper_and_finds_it_again(keeper: KeeperProcess) -> None:
    arguments = ["-m", "trial_runner.keeper", *_attach(keeper)]
    with _Attached(*arguments) as attached:
        pid = attached.ask("hello")["pid"]
        job = attached.ask("spawn", **keeper.request("job", "exec sleep 1000"))
    assert is_alive(job["pid"]), "the session is over, the job is not"
    with _Attached(*arguments) as attached:
        assert attached.ask("hello")["pid"] == pid
        again = attached.ask("list")["jobs"]["job"]
        assert again["started_ago_ms"] >= job["started_ago_ms"]
        assert {**again, "started_ago_ms": 0} == {**job, "started_ago_ms": 0}
        attached.ask("signal", name="job", grace_s=0)
    assert attached.returncode == 0


def test_attach_finds_keeper_with_other_temporary_folder(keeper: KeeperProcess) -> None:
    """As where each session has a `TMPDIR` of its own."""
    directory = keeper.directory / ("d" * 90)
    arguments = ["-m", "trial_runner.keeper", "attach", "--directory", str(directory)]
    (keeper.directory / "one").mkdir()
    (keeper.directory / "two").mkdir()
    with _Attached(*arguments, TMPDIR=str(keeper.directory / "one")) as attached:
        pid = attached.ask("hello")["pid"]
        attached.ask("spawn", **keeper.request("job", "exec sleep 1000"))
    with _Attached(*arguments, TMPDIR=str(keeper.directory / "two")) as attached:
        assert attached.ask("hello")["pid"] == pid
        attached.ask("signal", name="job", grace_s=0)


def test_attach_finds_keeper_without_temporary_folder(keeper: KeeperProcess) -> None:
    directory = keeper.directory / ("d" * 90)
    arguments = ["-m", "trial_runner.keeper", "attach", "--directory", str(directory)]
    (keeper.directory / "one").mkdir()
    with _Attached(*arguments, TMPDIR=str(keeper.directory / "one")) as attached:
        pid = attached.ask("hello")["pid"]
        attached.ask("spawn", **keeper.request("job", "exec sleep 1000"))
    shutil.rmtree(keeper.directory / "one")
    with _Attached(*arguments, TMPDIR=str(keeper.directory)) as attached:
        assert attached.ask("hello")["pid"] == pid
        attached.ask("signal", name="job", grace_s=0)


def test_attach_leaves_a_socket_of_another_process_alone(keeper: KeeperProcess) -> None:
    """Its path was that of the keeper which the lock's holder says it has."""
    directory = keeper.directory / "keeper"
    directory.mkdir()
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(keeper.directory / "other.sock"))
    other.listen()
    with _locked(directory, f"{os.getppid()}\n{keeper.directory}/other.sock\n"):
        done = _run(*_attach(keeper))
    assert done.returncode == 1 and "No keeper answers at" in done.stderr
    other.close()


def test_process_with_the_number_of_a_keeper_gets_no_signal(keeper: KeeperProcess) -> None:
    """As on another machine with the same home folder."""
    directory = keeper.directory / "keeper"
    directory.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as innocent, _locked(directory, f"{innocent.pid}\n{directory}/gone\n"):
        _run(*_attach(keeper))
        ended = innocent.poll()
        innocent.kill()
    assert ended is None


def test_keeper_on_another_machine_is_named(keeper: KeeperProcess) -> None:
    directory = keeper.directory / "keeper"
    directory.mkdir()
    with _locked(directory, f"1\n{directory}/gone\nlogin-2\n"):
        done = _run(*_attach(keeper))
    assert done.returncode == 1 and done.stderr.startswith(f"The keeper of {directory} runs on login-2, which has the")


@contextmanager
def _locked(directory: Path, text: str) -> Iterator[None]:
    """The directory is served by a process that `text` tells of, on a machine that is not this one."""
    with (directory / "keeper.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(text)
        lock.flush()
        yield


def test_attach_carries_much_both_ways(keeper: KeeperProcess) -> None:
    with _Attached("-m", "trial_runner.keeper", *_attach(keeper)) as attached:
        text = "x" * 5_000_000
        attached.ask("spawn", **keeper.request("job", "cat $D/big; exit 0", files={"big": text}))
        found = attached.ask("read", attempt_directory=str(keeper.attempt("job")), file="big", limit=len(text))
        assert found["size"] == len(text)


def test_attach_starts_one_keeper_when_many_come_at_once(keeper: KeeperProcess) -> None:
    pids = set()
    with ExitStack() as stack:
        for attached in [
            stack.enter_context(_Attached("-m", "trial_runner.keeper", *_attach(keeper))) for _ in range(4)
        ]:
            try:
                pids.add(attached.ask("hello")["pid"])
            except EOFError:
                pass  # another one took its place before it asked
    assert len(pids) == 1


def test_attach_works_from_the_archive(keeper: KeeperProcess, archive: Path) -> None:
    """From another folder: its files must not be imported as Python's modules."""
    (archive.parent / "json.py").write_text("raise RuntimeError('not this one')")
    with _Attached(str(archive), *_attach(keeper), cwd=archive.parent / "source") as attached:
        started = attached.ask("spawn", **keeper.request("job", "echo 1 > $NNI_OUTBOX; exit 4"))
        assert started["state"] == protocol.RUNNING
        event = attached.next_message()
        while event.get("event") != "ended":
            event = attached.next_message()
        assert event["job"]["exit_code"] == 4


class _Attached:
    """A client on the standard input and output of a command."""

    def __init__(self, *arguments: str, cwd: Path = ROOT, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._decoder = protocol.Decoder()
        self._messages: list[dict[str, Any]] = []
        self.returncode: int | None = None

    def __enter__(self) -> "_Attached":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it read everything
        self.returncode = self._process.wait(TIMEOUT_S)
        self._process.stdout.close()

    def ask(self, verb: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(protocol.encode({"verb": verb, "id": 1, **arguments}))
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise EOFError from error
        message = self.next_message()
        while "event" in message:
            message = self.next_message()
        return message["result"]

    def next_message(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while not self._messages:
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise EOFError
            self._messages += self._decoder.feed(data)
        return self._messages.pop(0)


def _attach(keeper: KeeperProcess) -> list[str]:
    return ["attach", "--directory", str(keeper.directory / "keeper"), "--socket", str(keeper.socket_path)]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trial_runner.keeper", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
