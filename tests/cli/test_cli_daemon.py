"""Starting the daemon in the background, with fake programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in_daemon import StandInDaemon

from nni_manager.client import daemon
from nni_manager.client.address import Address
from nni_manager.client.data_directory import make_data_directory
from nni_manager.domain.errors import InvalidInput, NniManagerError
from tests.left_children import reaped

pytestmark = pytest.mark.acceptance

ANSWER = "import os, sys; os.write(int(sys.argv[-1]), b{!r})"


@pytest.fixture(autouse=True)
def reaped_daemons() -> Iterator[None]:
    """A command does not wait for the daemon that it starts, and usually ends first."""
    with reaped():
        yield


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_start_returns_when_ready(tmp_path: Path) -> None:
    daemon.start(tmp_path, program(ANSWER.format("ready\n")))


def test_daemon_error_sentence_is_raised(tmp_path: Path) -> None:
    with pytest.raises(NniManagerError, match=r"^the data directory is in use by process 7$"):
        daemon.start(tmp_path, program(ANSWER.format("error: the data directory is in use by process 7\n")))


def test_an_end_without_a_word_names_the_log(tmp_path: Path) -> None:
    with pytest.raises(NniManagerError, match=rf"exit code 3 before it was ready; see {tmp_path}/daemon.log"):
        daemon.start(tmp_path, program("import sys; print('no such module'); sys.exit(3)"))
    assert (tmp_path / "daemon.log").read_text() == "no such module\n"


def test_daemon_is_detached(tmp_path: Path) -> None:
    """A session of its own, no standard input, both outputs in the log, started in the data directory."""
    code = (
        "import os, sys\n"
        "print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', os.getcwd(), flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
    )
    daemon.start(tmp_path, program(code + ANSWER.format("ready\n")))
    assert (tmp_path / "daemon.log").read_text() == f"True True {tmp_path}\nerr\n"


def test_daemon_outlives_the_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "question")
    os.mkfifo(tmp_path / "answer")
    later = "; question = open('question').read(); open('answer', 'w').write(question.upper())"
    child = program(ANSWER.format("ready\n") + later)
    code = f"daemon.start(Path({str(tmp_path)!r}), {child!r})"
    code = f"from pathlib import Path; from nni_manager.client import daemon; {code}"
    subprocess.run(program(code), timeout=30, check=True)
    (tmp_path / "question").write_text("alive")
    assert (tmp_path / "answer").read_text() == "ALIVE"


def test_a_running_daemon_is_found(tmp_path: Path) -> None:
    with StandInDaemon(tmp_path).running():
        assert daemon.reach(tmp_path) == Address(socket=str(tmp_path / "control.sock"))
    assert not (tmp_path / "start.lock").exists()


def test_only_one_of_many_commands_starts_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StandInDaemon(tmp_path).running() as stand_in:
        pointer = stand_in.directory / "control.json"
        hidden = pointer.rename(stand_in.directory / "hidden.json")
        starts: list[Path] = []

        def start(data_dir: Path, command: list[str]) -> None:
            starts.append(data_dir)
            hidden.rename(pointer)

        monkeypatch.setattr(daemon, "start", start)
        found: list[Address] = []
        threads = [threading.Thread(target=lambda: found.append(daemon.reach(tmp_path))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert starts == [tmp_path]
    assert found == [Address(socket=str(tmp_path / "control.sock"))] * 5


def test_a_data_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"file/data cannot be used \(Not a directory\); see --data-dir"):
        daemon.reach(tmp_path / "file" / "data")


def test_data_directory_name_without_utf8_is_refused(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    with pytest.raises(InvalidInput, match=r"^the data directory '.*caf\\udce9': holds '\\udce9', which UTF-8"):
        daemon.reach(folder)
    assert not folder.exists()


def test_daemon_that_ends_at_once_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "start", lambda data_dir, command: None)
    with pytest.raises(NniManagerError, match="started and ended at once"):
        daemon.reach(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kills", [1, 2])
def test_daemon_killed_before_ready_is_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    """A signal to all daemons must not fail a command that is just starting the next one."""
    code = f"""if True:
        import os, sys
        print("start", flush=True)
        if open("daemon.log").read().count("start") <= {kills}:
            os.kill(os.getpid(), 9)
        os.rename("control.json.hidden", "control.json")
        os.write(int(sys.argv[-1]), b"ready" + bytes([10]))"""
    monkeypatch.setattr(daemon, "_command", lambda data_dir: program(code))
    with StandInDaemon(tmp_path).running() as stand_in:
        pointer = stand_in.directory / "control.json"
        pointer.rename(stand_in.directory / "control.json.hidden")
        if kills == 1:
            assert daemon.reach(tmp_path) == Address(socket=str(tmp_path / "control.sock"))
        else:
            with pytest.raises(NniManagerError, match="was killed by signal 9 before it was ready"):
                daemon.reach(tmp_path)
    assert (tmp_path / "daemon.log").read_text() == "start\n" * 2


def test_daemon_with_removed_socket_is_found_when_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = program(ANSWER.format("error: the data directory is in use by process 7\n"))
    monkeypatch.setattr(daemon, "_command", lambda data_dir: says)
    with StandInDaemon(tmp_path).running() as stand_in:
        hidden = (stand_in.directory / "control.json").rename(stand_in.directory / "hidden.json")
        threading.Timer(0.5, lambda: hidden.rename(stand_in.directory / "control.json")).start()
        assert daemon.reach(tmp_path) == Address(socket=str(tmp_path / "control.sock"))


_HOLD = (
    "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); input()"
)


def test_blocked_start_names_the_lock_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon, "_TELL_AFTER_S", 0.0)
    monkeypatch.setattr(daemon, "_LOCK_PATIENCE_S", 0.3)
    (tmp_path / "start.lock").touch(mode=0o644)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "start.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(NniManagerError, match=rf"process {holder.pid} \(python.*user \d+\) has held .*start\.lock"):
            daemon.reach(tmp_path)
        holder.communicate(b"\n")
    assert f"waiting for process {holder.pid}" in capsys.readouterr().err
    assert (tmp_path / "start.lock").stat().st_mode & 0o777 == 0o600


def test_a_data_directory_that_others_may_enter_becomes_private(tmp_path: Path) -> None:
    data = tmp_path / "nni-experiments"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    make_data_directory(data)
    assert data.stat().st_mode & 0o777 == 0o700
    data.chmod(0o1777)
    make_data_directory(data)
    assert data.stat().st_mode & 0o7777 == 0o1777, "a folder like /tmp is not ours alone"
