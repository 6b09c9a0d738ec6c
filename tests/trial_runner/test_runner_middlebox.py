"""Boxes that answer in HTTP between a runner and its manager: their word counts for nothing, and costs nothing."""

import itertools
import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from listener_for_tests import PATH, TOKEN, Answer, Body, FakeListener, Runner, metrics, report

from nni_manager.platform_kit.testing.middlebox import ANSWERS, FAULTS, Each, Fault, middlebox
from trial_runner import protocol
from trial_runner.runner.client import Client, Denied, Unavailable
from trial_runner.runner.settings import Credential

pytestmark = pytest.mark.acceptance

_POSTS: dict[str, Body] = {
    "version": {},
    "status": {"event": "started"},
    "heartbeat": {"reporter": True},
    "metrics": {"outbox": "outbox/a", "start": 0, "end": 3, "lines": ["{}"]},
    "log": {"file": "stdout", "offset": 0, "data": "x"},
}


def _client(port: int) -> Client:
    return Client(f"http://127.0.0.1:{port}{PATH}", Credential(TOKEN))


def _ask(client: Client, route: str, folder: Path) -> object:
    if route == "code":
        return client.download(route, str(folder / "code"))
    return client.post(route, _POSTS[route]) if route in _POSTS else client.get(route)


@pytest.mark.parametrize("route", [*_POSTS, "parameters", "outboxes", "code"])
def test_any_answer_of_a_proxy_is_retried(listener: FakeListener, tmp_path: Path, route: str) -> None:
    """Never a refusal, an end or a denial, on any route, before and after the request went through."""
    listener.code = b"x" * 1000
    with middlebox(listener.port, Each(len(FAULTS), routes=[route])) as box:
        client = _client(box.port)
        for fault in FAULTS:
            with pytest.raises(Unavailable) as refusal:
                _ask(client, route, tmp_path)
            assert not isinstance(refusal.value, Denied), fault.name
            assert refusal.value.retry_after is None, "only the manager sets the wait"
        assert _ask(client, route, tmp_path) is not None
        client.close()
    assert len(box.met) == len(FAULTS)


@pytest.mark.parametrize("first", range(0, len(FAULTS), 11))
@pytest.mark.parametrize("is_together", [True, False], ids=["together", "one by one"])
def test_trial_behind_a_failing_proxy_completes(
    listener: FakeListener, runner: Runner, first: int, is_together: bool
) -> None:
    listener.decides, listener.takes_together = True, is_together
    faults = FAULTS[first:] + FAULTS[:first]
    with middlebox(listener.port, Each(3, faults)) as box:
        runner.environment.update(listener.variables(box.port))
        ended = runner.run(f"{metrics(100)}; echo out; exit 3")
    assert ended.code == 3
    assert listener.values() == list(range(100))
    assert listener.logs["stdout"] == b"out\n"
    ends = [status for status in listener.statuses if status["event"] == "exited"]
    assert {(end["exitCode"], tuple(end["undelivered"])) for end in ends} == {(3, ())}
    routes = (
        {"version", "together"} if is_together else {"version", "code", "parameters", "outboxes", "status", "metrics"}
    )
    assert routes <= {route for route, _ in box.met}


@pytest.mark.parametrize("name", ["413", "a page"])
def test_posts_shrink_for_a_proxy_with_a_size_limit(listener: FakeListener, runner: Runner, name: str) -> None:
    """It means the size of the post: what it lets pass comes in smaller ones. Another answer to large ones does not."""

    def choose(route: str, body: bytes) -> Fault | None:
        return Fault(name=name, answer=ANSWERS[name]) if len(body) > 20_000 else None

    with middlebox(listener.port, choose) as box:
        runner.environment.update({**listener.variables(box.port), protocol.ENV_DRAIN_S: "1"})
        ended = runner.run(f"{metrics(3000)}; exit 4")
    assert ended.code == 4
    assert listener.exited["exitCode"] == 4
    if name == "413":
        assert (listener.values(), listener.exited["undelivered"]) == (list(range(3000)), [])
    else:
        assert "Time ran out before all results were delivered" in listener.exited["undelivered"][0]


def test_end_is_reported_even_if_results_are_blocked(listener: FakeListener, runner: Runner) -> None:
    """Heartbeats are not progress; both sides' last messages name what is missing."""

    def choose(route: str, body: bytes) -> Fault | None:
        return Fault(name="400", answer=ANSWERS["400"]) if route in ("metrics", "log", "together") else None

    with middlebox(listener.port, choose) as box:
        runner.environment.update({**listener.variables(box.port), protocol.ENV_DRAIN_S: "0.5"})
        ended = runner.run(f"{report(1)}; echo out; exit 5")
    assert ended.code == 5
    assert listener.exited["exitCode"] == 5
    results = "Time ran out before all results were delivered: the rest stays in the trial's folder."
    logs = "Time ran out before all logs were delivered: the rest stays in the trial's folder."
    assert listener.exited["undelivered"] == [results]
    written = json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())
    assert (written["exit_code"], written["undelivered"]) == (5, [results, logs])
    assert runner.outbox_values() == [1]


def test_exit_report_lists_refused_lines(listener: FakeListener, runner: Runner) -> None:
    refusals = {"outbox/a": Answer(400, {"error": "no such outbox"}), "outbox/b": Answer(400, {}), "": None}
    asked = itertools.count()

    def refuse(route: str, body: Body) -> Answer | None:
        is_refused = body.get("outbox") == "outbox/a" or (body.get("outbox") == "outbox/b" and next(asked) < 3)
        return refusals[body["outbox"]] if is_refused else None

    listener.before = refuse
    ended = runner.run(f"echo 1 > $NNI_SYS_DIR/outbox/a; echo 2 > $NNI_SYS_DIR/outbox/b; {report(1)}")
    assert ended.code == 0
    assert (listener.values(), listener.lines["outbox/b"]) == ([1], ["2"]), "a refusal without a sentence is none"
    sentence = "The manager refused outbox/a (no such outbox): it stays in the trial's folder."
    assert listener.exited["undelivered"] == [sentence]
    assert json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())["undelivered"] == [sentence]


def test_exit_report_lists_skipped_bytes(listener: FakeListener, runner: Runner) -> None:
    runner.run("mkdir $NNI_SYS_DIR/.nni; echo nonsense > $NNI_SYS_DIR/.nni/metrics")
    (sentence,) = listener.exited["undelivered"]
    assert sentence.endswith("nni/.nni/metrics has 9 bytes without a record at offset 0")


def test_replayed_answer_is_rejected(listener: FakeListener, tmp_path: Path) -> None:
    """A cache that repeats what the manager said to the last post of this kind."""
    recorded: list[bytes] = []
    with replaying_proxy(listener.port, recorded) as (port, replay):
        client = _client(port)
        client.post("status", {"event": "started"})
        replay.set()
        with pytest.raises(Unavailable) as refusal:
            client.post("status", {"event": "exited", "exitCode": 0})
        assert not isinstance(refusal.value, Denied)
        replay.clear()
        client.post("status", {"event": "exited", "exitCode": 0})
        client.close()
    assert [status["event"] for status in listener.statuses] == ["started", "exited"]


@contextmanager
def replaying_proxy(port: int, recorded: list[bytes]) -> Iterator[tuple[int, threading.Event]]:
    """A proxy's port, and an event that has it give its last answer again instead of asking. One request a
    connection."""
    replay = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = _message(self.rfile)
            if not replay.is_set():
                with socket.create_connection(("127.0.0.1", port)) as manager, manager.makefile("rb") as answers:
                    manager.sendall(request)
                    recorded.append(_message(answers))
            self.wfile.write(recorded[-1])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], replay
        finally:
            server.shutdown()
            thread.join()


def _message(file: BinaryIO) -> bytes:
    """A request or an answer, whole."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += file.readline()
    length = re.search(rb"Content-Length: (\d+)", head, re.IGNORECASE)
    return head + file.read(int(length[1]) if length else 0)
