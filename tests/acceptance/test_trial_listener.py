"""The trial listener of a real daemon with invalid, huge, fast and slow clients. The tests act as runners."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.acceptance import runner_flood
from tests.acceptance.cluster import Cluster, bearer, post, register
from tests.acceptance.runner_flood import Runner
from tests.live_daemon import Daemon
from tests.waiting import until
from trial_runner import protocol

pytestmark = [pytest.mark.acceptance, pytest.mark.group("trial_listener")]

MIB = 1024 * 1024
METRICS = 1_000_000
#: Maximum duration of `/readyz` in seconds, and maximum growth of memory.
PROMPT_S = 0.05
GROWTH = 30 * MIB
_NAP_S = 0.02


class Watch:
    """Samples the daemon's memory and readiness during the test."""

    def __init__(self, daemon: Daemon) -> None:
        assert daemon.process is not None
        self._process = psutil.Process(daemon.process.pid)
        self._socket = json.loads((daemon.data / "control.json").read_text())["socket"]
        self._over = threading.Event()
        self._ran_s, self._queued_s = _scheduled(daemon.process.pid)
        self._before = self._process.memory_info().rss
        self._most = self._before
        self.waits_s: list[float] = []
        #: Seconds that a sleeping thread wakes too late, which measures the load of the machine.
        self._oversleeps_s: list[float] = []

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()

    @property
    def growth(self) -> int:
        return self._most - self._before

    def _look(self) -> None:
        connection = http.client.HTTPConnection("manager")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self._socket)
        began = time.monotonic()
        while not self._over.wait(_NAP_S):
            self._oversleeps_s.append(time.monotonic() - began - _NAP_S)
            began = time.monotonic()
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            response.read()
            self.waits_s.append(time.monotonic() - began)
            assert response.status == 200
            self._most = max(self._most, self._process.memory_info().rss)
            began = time.monotonic()
        connection.close()

    def check(self) -> None:
        """Check that the daemon is not slow, apart from the delay of a busy machine."""
        assert len(self.waits_s) > 50
        late, machine, share = _worst_but_few(self.waits_s), _worst_but_few(self._oversleeps_s), self._share()
        slowest = [round(wait * 1000) for wait in sorted(self.waits_s)[-10:]]
        assert late * share < PROMPT_S + 3 * machine, (
            f"{late * 1000:.0f} ms (machine: {machine * 1000:.0f}, share of a core: {share:.2f}); slowest: {slowest}"
        )
        assert self.growth < GROWTH, f"{self.growth / MIB:.0f} MiB more"

    def _share(self) -> float:
        """The share of its runnable time in which the daemon had a processor."""
        ran_s, queued_s = _scheduled(self._process.pid)
        ran_s, queued_s = ran_s - self._ran_s, queued_s - self._queued_s
        return ran_s / (ran_s + queued_s)


def _scheduled(pid: int) -> tuple[float, float]:
    """Seconds since its start that a process's first thread ran, and that it waited for a processor."""
    ran, queued, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(queued) / 1e9


def _worst_but_few(seconds: list[float]) -> float:
    """The 98th percentile."""
    return sorted(seconds)[len(seconds) * 98 // 100]


def test_trial_routes_need_the_trials_own_token(shared: Daemon, code: Path) -> None:
    cluster = Cluster(shared, code, 2)
    own, other = cluster.environments
    heartbeat = b'{"reporter": true}'
    assert post(own, "heartbeat", heartbeat)[0] == 401
    assert post(own, "heartbeat", heartbeat, **bearer(other))[0] == 403
    with Runner(own) as runner:
        runner.register()
        assert runner.post("heartbeat", {}) == (200, {"stop": False, "graceS": 5.0, "everyS": 5})
        assert runner.post("status", {"event": "exited", "exitCode": 0, "outboxes": {}})[0] == 200
    shared.wait_for(cluster.id, lambda state: state["counts"].get("SUCCEEDED") == 1)
    status, answer = post(own, "heartbeat", heartbeat, **bearer(own))
    assert (status, "is closed" in answer["error"]) == (410, True)
    token = own["NNI_TRIAL_TOKEN"]
    assert token not in shared.log()
    assert token not in (shared.data / cluster.id / "log" / "nnimanager.log").read_text()


def test_runners_find_the_next_daemon_at_the_same_address(listening: Daemon, code: Path) -> None:
    cluster = Cluster(listening, code, 1)
    cluster.start(0)
    variables = cluster.environments[0]
    register(variables)
    listening.kill()
    listening.start("--host", "127.0.0.1", "--port", "0", "--trial-host", "127.0.0.1")
    assert _when_it_listens(variables)["stop"] is False
    attempt = cluster.attempt(0)
    assert (attempt["channel"], attempt["runnerVersion"]) == ("push", protocol.VERSION)
    listening.call("POST", f"/experiments/{cluster.id}/trials/{cluster.trial_id(0)}/kill")
    assert _when_it_listens(variables)["stop"] is True
    exited = json.dumps({"event": "exited", "signal": 15, "outboxes": {}}).encode()
    assert post(variables, "status", exited, **bearer(variables))[0] == 200
    listening.wait_for(cluster.id, lambda state: state["counts"].get("USER_CANCELED") == 1)


@pytest.mark.alone
def test_fifty_megabyte_body_is_refused(listening: Daemon, code: Path) -> None:
    cluster = Cluster(listening, code, 2)
    own, other = cluster.environments
    register(own)
    with Watch(listening).watching() as watch:
        for headers, expected in ((bearer(own), 413), (bearer(other), 403), ({}, 401)):
            for is_chunked in (False, True):
                assert _status_of_a_large_post(own, headers, is_chunked=is_chunked) == expected
        until(lambda: len(watch.waits_s) > 50)
    watch.check()
    assert post(own, "heartbeat", b"{}", **bearer(own))[0] == 200


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.timeout(120)
def test_million_metrics_in_a_minute_are_stored(listening: Daemon, code: Path) -> None:
    cluster = Cluster(listening, code, 8)
    listening.call("GET", f"/experiments/{cluster.id}")
    command = [sys.executable, runner_flood.__file__, str(METRICS // 8), *map(str, cluster.files)]
    with Watch(listening).watching() as watch:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    flood = json.loads(done.stdout)
    assert flood["seconds"] < 60
    assert flood["putOff"] > 0, "eight at once are more than there is room for"
    watch.check()
    # the API does not return a million results at once, and reading pages takes minutes
    assert listening.rows(cluster.id, "SELECT count(*), count(DISTINCT value) FROM metrics") == [
        (METRICS, METRICS // 8)
    ]
    disorder = "SELECT count(*) FROM metrics WHERE value <> sequence OR sequence <> number"
    assert listening.rows(cluster.id, disorder) == [(0,)]


def test_slow_clients_delay_no_other(shared: Daemon, code: Path) -> None:
    """Two hundred clients send a header line per second, for as long as they can."""
    cluster = Cluster(shared, code, 1)
    slow = [socket.create_connection(cluster.address) for _ in range(200)]
    began = time.monotonic()
    try:
        with Watch(shared).watching() as watch:
            for each in slow:
                each.sendall(b"POST /trial/v1/x HTTP/1.1\r\nHost: x\r\n")
            while time.monotonic() - began < 20:
                for each in slow:
                    each.sendall(b"X-more: of it\r\n")
                time.sleep(1)
            variables = cluster.environments[0]
            register(variables)
            assert post(variables, "heartbeat", b"{}", **bearer(variables))[0] == 200
        watch.check()
        for each in slow:
            each.settimeout(max(0.1, began + 45 - time.monotonic()))
            assert _is_closed(each)
        assert time.monotonic() - began > 25, "not at once: a slow network is not an attack"
    finally:
        for each in slow:
            each.close()


def _when_it_listens(variables: dict[str, str]) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            status, answer = post(variables, "heartbeat", b"{}", **bearer(variables))
        except OSError:
            status, answer = 0, {}
        if status == 200:
            return answer
        assert status in (0, 503), answer
        time.sleep(0.05)
    raise AssertionError("no listener")


def _status_of_a_large_post(variables: dict[str, str], headers: dict[str, str], *, is_chunked: bool) -> int:
    """Offer fifty megabytes, but send only what is accepted."""
    host, _, port = urlsplit(variables["NNI_MANAGER_URL"]).netloc.partition(":")
    path = urlsplit(variables["NNI_MANAGER_URL"]).path
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {50 * MIB}"
    lines = [f"POST {path}/metrics HTTP/1.1", f"Host: {host}", length, *(f"{k}: {v}" for k, v in headers.items())]
    piece = b" " * MIB
    if is_chunked:
        piece = f"{MIB:x}\r\n".encode() + piece + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = http.client.HTTPResponse(connection)
        connection.setblocking(False)
        sent, offset = 0, 0
        while sent < 50 and not _has_answer(connection):
            try:
                offset += connection.send(piece[offset:])
            except BlockingIOError:
                time.sleep(0.005)
            except ConnectionError:
                break
            if offset == len(piece):
                sent, offset = sent + 1, 0
        connection.settimeout(20)
        answer.begin()
        return answer.status


def _has_answer(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def _is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True
