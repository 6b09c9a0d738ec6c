"""The cost of new connections to a daemon without a token, which looks up the user of each in the kernel."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from tests.benchmarks import subject
from tests.benchmarks.table import FLOOR, Table, at_most
from tests.live_daemon import LISTENING, Daemon

_A_SECOND, _SECONDS, _REPEATS = 50, 8, 3


def measure(folder: Path, table: Table) -> None:
    """The floor is a daemon that admits all users without a lookup; both run alternately."""
    token = {"NNI_MANAGER_TOKEN": ""}
    everybody = {**token, "NNI_MANAGER_ALLOW_LOCAL_USERS": "true"}
    ours, floor = [], []
    with (
        subject.running(folder / "ours", *LISTENING, environment=token) as looking,
        subject.running(folder / "floor", *LISTENING, environment=everybody) as open_to_all,
    ):
        for _ in range(_REPEATS + 1):
            ours.append(_percent(looking))
            floor.append(_percent(open_to_all))
    of_look_up = [mine - other for mine, other in zip(ours[1:], floor[1:], strict=True)]  # the first ones warm up
    name = f"CPU, % of a core, {_A_SECOND} new connections a second"
    table.row(f"{name}, a call on each; floor: no look-up", ours[1:], at_most(1.25, FLOOR), floor=floor[1:])
    table.row(f"{name}, the look-up alone", of_look_up, at_most(2))


def _percent(daemon: Daemon) -> float:
    listeners = {each["kind"]: each["address"] for each in daemon.call("GET", "/daemon")["listeners"]}
    at = urlsplit(listeners["service"])
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    before_s, begun_s = subject.runtime_s(process), time.perf_counter()
    for number in range(_A_SECOND * _SECONDS):
        time.sleep(max(0.0, begun_s + number / _A_SECOND - time.perf_counter()))
        _call(str(at.hostname), int(at.port or 0))
    return (subject.runtime_s(process) - before_s) / (time.perf_counter() - begun_s) * 100


def _call(host: str, port: int) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request("GET", "/api/v1/experiments", headers={"Connection": "close"})
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
    finally:
        connection.close()
