"""A runner on storage that shows a file only once it is closed: the copies it makes meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from listener_for_tests import Runner

from tests.waiting import until
from trial_runner import protocol

pytestmark = pytest.mark.acceptance

TOLD = {protocol.ENV_CHANNEL: protocol.PULL, protocol.ENV_CODE: "present", protocol.ENV_PIECES: "1"}
#: Until a test lets it go on.
_GATE = "until [ -e $NNI_SYS_DIR/go ]; do sleep 0.05; done"


@pytest.fixture
def reader(runner: Runner) -> Runner:
    """A runner with the manager's files in its folder."""
    (runner.system_dir / protocol.CODE_FOLDER).mkdir(parents=True)
    (runner.system_dir / protocol.PARAMETER_FILE).write_text("{}")
    return runner


def copied(runner: Runner, name: str) -> bytes:
    """What is in the pieces of a file."""
    pieces = (runner.system_dir / protocol.PIECES_FOLDER).glob(f"*/{name}/*")
    try:
        return b"".join(path.read_bytes() for path in sorted(pieces, key=lambda path: int(path.name)))
    except FileNotFoundError:  # what an earlier container left goes while it is looked at
        return b""


def test_open_files_are_copied_while_the_command_runs(reader: Runner) -> None:
    report = 'echo \'{"type": "intermediate", "value": 1}\' >> "$NNI_OUTBOX"'
    process = reader.start(f"echo one; {report}; env > $NNI_SYS_DIR/env; {_GATE}; echo two", **TOLD)
    until(lambda: copied(reader, "stdout") == b"one\n" and copied(reader, protocol.MAIN_OUTBOX))
    assert json.loads(copied(reader, protocol.MAIN_OUTBOX))["value"] == 1
    assert not (reader.system_dir / protocol.EXIT_FILE).exists()
    (reader.system_dir / "go").touch()
    assert reader.wait(process).code == 0
    assert not list((reader.system_dir / protocol.PIECES_FOLDER).glob("*")), "the files themselves are closed"
    assert (reader.system_dir / "stdout").read_bytes() == b"one\ntwo\n"
    assert protocol.ENV_PIECES not in (reader.system_dir / "env").read_text()


def test_a_long_file_is_copied_in_pieces_of_one_length(reader: Runner) -> None:
    length = 2 * protocol.PIECE_BYTES + 5
    process = reader.start(f"head -c {length} /dev/zero | tr '\\0' x; {_GATE}; echo y", **TOLD)
    until(lambda: len(copied(reader, "stdout")) == length)
    pieces = sorted((reader.system_dir / protocol.PIECES_FOLDER).glob("*/stdout/*"))
    assert [(path.name, path.stat().st_size) for path in pieces] == [
        ("0", protocol.PIECE_BYTES),
        ("1", protocol.PIECE_BYTES),
        ("2", 5),
    ]
    (reader.system_dir / "go").touch()
    assert reader.wait(process).code == 0


def test_pieces_of_an_earlier_container_go(reader: Runner) -> None:
    old = reader.system_dir / protocol.PIECES_FOLDER / "0123456789abcdef" / "stdout" / "0"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"of a node that was taken away\n")
    process = reader.start(f"echo new; {_GATE}", **TOLD)
    until(lambda: copied(reader, "stdout") == b"new\n")
    (reader.system_dir / "go").touch()
    assert reader.wait(process).code == 0


def test_no_copies_without_the_setting(reader: Runner) -> None:
    told = {name: value for name, value in TOLD.items() if name != protocol.ENV_PIECES}
    assert reader.run("echo one; ls -a $NNI_SYS_DIR > $NNI_SYS_DIR/seen", **told).code == 0
    assert protocol.PIECES_FOLDER not in Path(reader.system_dir / "seen").read_text().split()
