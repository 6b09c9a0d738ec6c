"""Runners behind a slow network in which every tenth request fails: nothing lost, nothing twice, in order."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.acceptance import bad_network
from tests.acceptance.numbered import LISTENING, Numbered
from tests.live_daemon import Daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

LATENCY_S = 1.0


def test_a_slow_network_that_loses_requests_and_answers(daemon: Daemon, code: Path) -> None:
    port = _free_port()
    daemon.terminate()
    daemon.start(*LISTENING, "--trial-port", str(port))
    with bad_network.bad_network(port, LATENCY_S) as network:
        work = Numbered(
            daemon, code, trials=24, steps=20, pause_s=0.2, platform={"nniManagerIp": bad_network.ADDRESS},
            trialConcurrency=24,
        )  # fmt: skip
        work.wait(200)
    work.check("push")
    assert network.requests > 24 * 8
    assert min(network.failures[way] for way in (bad_network.BEFORE, bad_network.AFTER, bad_network.HALF)) > 3
    assert {"metrics", "status"} <= network.failed_routes.keys()


def _free_port() -> int:
    """At both addresses."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        with socket.create_server((bad_network.ADDRESS, port)):
            return port
