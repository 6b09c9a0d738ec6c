"""Starting one process, in the way of this Python and in that of Python 3.7."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trial_runner import launch
from trial_runner.launch import Streams

pytestmark = pytest.mark.acceptance


@pytest.fixture(params=[True, False], ids=["posix_spawn", "subprocess"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_HAS_POSIX_SPAWN", request.param)


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    flags = os.O_WRONLY | os.O_CREAT
    descriptors = [
        os.open(os.devnull, os.O_RDONLY),
        os.open(tmp_path / "stdout", flags),
        os.open(tmp_path / "stderr", flags),
    ]
    yield Streams(*descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_shell_runs_the_command_in_a_session_of_its_own(tmp_path: Path, streams: Streams) -> None:
    before = os.getcwd()
    command = 'pwd; cat; echo "$ONLY"; ps -o sid= -p $$; exit 7'
    pid = launch.launch(command, str(tmp_path), {"ONLY": "this", "PATH": os.environ["PATH"]}, streams)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (tmp_path / "stdout").read_text().split() == [str(tmp_path), "this", str(pid)]
    assert os.getcwd() == before


def test_failed_start_raises_and_changes_nothing(tmp_path: Path, streams: Streams) -> None:
    before = os.getcwd()
    with pytest.raises(FileNotFoundError):
        launch.launch("exit 0", str(tmp_path / "missing"), {}, streams)
    with pytest.raises(OSError, match="too long"):
        launch.launch("x" * 3_000_000, str(tmp_path), {}, streams)
    assert os.getcwd() == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("env", ["PWD={folder}"]),
        ("./script one two", ["one", "two"]),
        ("sh ./script --lr=0.1 b", ["--lr=0.1", "b"]),
    ],
)
def test_a_plain_command_needs_no_shell(tmp_path: Path, streams: Streams, command: str, words: list[str]) -> None:
    _script(tmp_path, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    assert launch._plain_program(command, str(tmp_path), dict(os.environ))
    pid = launch.launch(command, str(tmp_path), {"PATH": os.environ["PATH"]}, streams)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    wrote = (tmp_path / "stdout").read_text().splitlines()
    assert [word.format(folder=tmp_path) in wrote for word in words] == [True] * len(words)


@pytest.mark.parametrize(
    "command",
    [
        "a; b",
        "a | b",
        "A=1 env",
        "env $HOME",
        "env ~",
        "env 'a b'",
        "env *",
        "exit 3",
        "echo a",
        "",
        " env",
        "env\nenv",
        "no-such-program",
        "./not-there",
        "env {a,b}",
        "env a\\b",
        "env <x",
        "(env)",
        "env #x",
    ],
)
def test_command_with_shell_syntax_runs_in_a_shell(tmp_path: Path, command: str) -> None:
    assert launch._plain_program(command, str(tmp_path), dict(os.environ)) == ""


def test_command_that_cannot_be_executed_fails_in_the_shell(tmp_path: Path, streams: Streams) -> None:
    _script(tmp_path, "echo from a script without a first line\nexit 5\n")
    pid = launch.launch("./script", str(tmp_path), {"PATH": os.environ["PATH"]}, streams)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert (tmp_path / "stdout").read_text() == "from a script without a first line\n"


def _script(folder: Path, text: str) -> None:
    script = folder / "script"
    script.write_text(text)
    script.chmod(0o755)
