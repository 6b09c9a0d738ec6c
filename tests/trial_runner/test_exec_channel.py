"""The channel exec: a container that cannot be reached nor mounted is filled, read and released by commands in it."""

import base64
import io
import json
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from typing import Any

import pytest
from listener_for_tests import TIMEOUT_S, FakeListener, Runner, report

from nni_manager.platform_kit.payload import runner_archive
from trial_runner import protocol

pytestmark = pytest.mark.acceptance

RECORD = '{"parameter_id": 3, "parameters": {"lr": 0.1}}'
EXEC = {protocol.ENV_CHANNEL: protocol.EXEC, protocol.ENV_TOKEN: "", protocol.ENV_MANAGER_URL: ""}


class Channel:
    """Like the platform's exec: a second command in the container, with its stdin and stdout."""

    def __init__(self, runner: Runner) -> None:
        self.folder = runner.system_dir
        self.archive = runner.folder / "runner.pyz"
        self.archive.write_bytes(runner_archive())
        runner.program = [sys.executable, str(self.archive)]

    def call(self, verb: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        command = [sys.executable, "-S", str(self.archive), verb, str(self.folder)]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)

    def fill(self, files: dict[str, str], record: str = RECORD) -> list[dict[str, Any]]:
        code = _tar(files)
        return frames(self.call("fill", protocol.encode({"record": record, "code": len(code)}) + code))

    def read(self, outboxes: dict[str, int] | None = None, logs: dict[str, int] | None = None) -> list[dict[str, Any]]:
        return frames(self.call("read", protocol.encode({"outboxes": outboxes or {}, "logs": logs or {}})))

    def until(self, condition: Callable[[list[dict[str, Any]]], object]) -> list[dict[str, Any]]:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition(found := self.read()):
            assert time.monotonic() < deadline, found
        return found


@pytest.fixture
def channel(runner: Runner) -> Channel:
    return Channel(runner)


def test_a_container_that_is_filled_read_and_released(runner: Runner, channel: Channel) -> None:
    process = runner.start(f"cat $NNI_CODE_DIR/hello.txt; {report(1)}; echo late >&2; exit 3", **EXEC)
    assert channel.fill({"hello.txt": "hello\n"}) == [{"filled": True}]
    found = channel.until(lambda messages: any(message.get("event") == "exited" for message in messages))
    greeting, lines, *logs, exited, last = found
    assert (greeting["event"], greeting["channel"], greeting["version"]) == ("greeting", "exec", protocol.VERSION)
    assert (lines["outbox"], lines["start"], lines["lines"]) == (
        protocol.MAIN_OUTBOX,
        0,
        ['{"type": "intermediate", "value": 1}'],
    )
    assert {log["file"]: base64.b64decode(log["data"]) for log in logs} == {"stdout": b"hello\n", "stderr": b"late\n"}
    assert (exited["exit_code"], exited["container"]) == (3, greeting["container"])
    assert exited["outboxes"] == {protocol.MAIN_OUTBOX: lines["end"]} and exited["logs"]["stdout"] == 6
    assert last == {"event": "read"}
    assert process.poll() is None, "it waits until everything was read"
    again = channel.read({protocol.MAIN_OUTBOX: lines["end"]}, {"stdout": 6, "stderr": 2})
    assert [message["event"] for message in again] == ["greeting", "log", "exited", "read"]
    assert base64.b64decode(again[1]["data"]) == b"te\n"
    assert json.loads((channel.folder / protocol.PARAMETER_FILE).read_text())["parameter_id"] == 3
    assert frames(channel.call("release")) == [{"released": True}]
    assert runner.wait(process).code == 3


def test_read_is_empty_before_registration(runner: Runner, channel: Channel) -> None:
    runner.start("true", **EXEC)
    assert channel.read() == [{"event": "read"}]


def test_second_fill_changes_nothing(runner: Runner, channel: Channel) -> None:
    runner.system_dir.mkdir()
    assert channel.fill({"a.txt": "first"}) == channel.fill({"a.txt": "second"}) == [{"filled": True}]
    assert (channel.folder / "code" / "a.txt").read_text() == "first"


def test_interrupted_fill_leaves_no_parameters(runner: Runner, channel: Channel) -> None:
    code = _tar({"a.txt": "x"})
    done = channel.call("fill", protocol.encode({"record": RECORD, "code": len(code)}) + code[:-1])
    assert (done.returncode, done.stdout) == (protocol.EXIT_USAGE, b"")
    assert b"the code ends 1 bytes early" in done.stderr
    assert not (channel.folder / protocol.PARAMETER_FILE).exists()
    assert channel.fill({"a.txt": "x"}) == [{"filled": True}]


@pytest.mark.parametrize(
    ("verb", "stdin"),
    [
        ("look", b""),
        ("read", b""),
        ("read", b"\0\0\0\x02{}"[:5]),
        ("read", b"\0\0\0\x02[]"),
        ("read", b"\0\0\0\x02no"),
        ("read", protocol.encode({"outboxes": {"outbox/a": -1}})),
        ("fill", protocol.encode({"record": 1, "code": 0})),
        ("fill", b"\xff\xff\xff\xff"),
    ],
)
def test_invalid_calls_are_refused(runner: Runner, channel: Channel, verb: str, stdin: bytes) -> None:
    done = channel.call(verb, stdin)
    assert (done.returncode, done.stdout) == (protocol.EXIT_USAGE, b"")
    assert done.stderr.startswith(b"trial_runner: ") and b"Traceback" not in done.stderr


def test_container_without_fill_ends(runner: Runner, channel: Channel) -> None:
    ended = runner.run("true", **EXEC, **{protocol.ENV_DRAIN_S: "0.2"})
    assert ended.code == protocol.EXIT_UNREACHABLE
    assert "in time: check that it may run commands" in ended.stderr


def test_container_in_released_folder_waits_again(runner: Runner, channel: Channel) -> None:
    channel.fill({})
    channel.call("release")
    process = runner.start("exit 4", **EXEC)
    channel.until(lambda messages: any(message.get("event") == "exited" for message in messages))
    assert process.poll() is None
    channel.call("release")
    assert runner.wait(process).code == 4


def test_container_without_release_ends(runner: Runner, channel: Channel) -> None:
    channel.fill({})
    ended = runner.run("exit 4", **EXEC, **{protocol.ENV_DRAIN_S: "0.3"})
    assert ended.code == 4


MAY_CHOOSE = {protocol.ENV_CHANNEL: protocol.PUSH_OR_EXEC}


def test_choosing_container_pushes_if_manager_answers(listener: FakeListener, runner: Runner, channel: Channel) -> None:
    ended = runner.run(report(1), **MAY_CHOOSE)
    assert (ended.code, listener.versions[0]["channel"]) == (0, protocol.PUSH)
    assert frames(channel.call("channel")) == [{"channel": "push"}]


def test_container_without_an_answer_is_filled_and_read(
    listener: FakeListener, runner: Runner, channel: Channel
) -> None:
    listener.close()
    process = runner.start(f"cat $NNI_CODE_DIR/hello.txt; {report(1)}; exit 3", **MAY_CHOOSE)
    assert frames(channel.call("channel")) == [{"channel": ""}], "it tries"
    deadline = time.monotonic() + TIMEOUT_S
    while frames(channel.call("channel")) != [{"channel": "exec"}]:
        assert time.monotonic() < deadline
    channel.fill({"hello.txt": "hello\n"})
    greeting, *_ = channel.until(lambda messages: any(message.get("event") == "exited" for message in messages))
    assert greeting["channel"] == protocol.EXEC and process.poll() is None
    channel.call("release")
    assert runner.wait(process).code == 3


def test_rest_is_read_when_posts_stop_arriving(listener: FakeListener, runner: Runner, channel: Channel) -> None:
    """It goes on trying, until it is told that all was read."""
    go_on = runner.folder / "go-on"
    command = f"{report(1)}; while [ ! -e {go_on} ]; do sleep 0.05; done; {report(2)}; exit 3"
    process = runner.start(command, **MAY_CHOOSE)
    listener.wait_for(lambda: listener.values() == [1])
    stored = listener.sizes[protocol.MAIN_OUTBOX]
    listener.close()
    go_on.touch()
    found = channel.until(lambda messages: any(message.get("event") == "exited" for message in messages))
    assert found[0]["channel"] == protocol.PUSH and process.poll() is None
    rest = frames(channel.call("read", protocol.encode({"outboxes": {protocol.MAIN_OUTBOX: stored}, "logs": {}})))
    (lines,) = (message["lines"] for message in rest if message["event"] == "lines")
    assert [json.loads(line)["value"] for line in lines] == [2]
    channel.call("release")
    assert runner.wait(process).code == 3


def test_the_first_address_that_answers_is_the_manager(listener: FakeListener, runner: Runner) -> None:
    with socket.socket() as taken:  # bound, without a listener
        taken.bind(("127.0.0.1", 0))
        nowhere = listener.url.replace(str(listener.port), str(taken.getsockname()[1]))
        ended = runner.run(report(1), **{protocol.ENV_MANAGER_URL: f"{nowhere} {listener.url}"})
    assert ended.code == 0 and len(listener.versions) == 1


def frames(done: "subprocess.CompletedProcess[bytes]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return protocol.Decoder().feed(done.stdout)


def _tar(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
