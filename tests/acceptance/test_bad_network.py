"""Runners on a slow network in which every tenth request fails: no result is lost, duplicated or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance import bad_network
from tests.acceptance.numbered import Numbered
from tests.live_daemon import LISTENING, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

LATENCY_S = 1.0


def test_no_trial_is_lost_on_a_slow_and_lossy_network(code: Path, tmp_path: Path) -> None:
    port = bad_network.free_port()
    at_port = running_daemon(tmp_path, *LISTENING, "--trial-port", str(port))
    with bad_network.bad_network(port, LATENCY_S) as network, at_port as daemon:
        work = Numbered(
            daemon,
            code,
            trials=24,
            steps=20,
            pause_s=0.2,
            platform={"nniManagerIp": bad_network.ADDRESS},
            trialConcurrency=24,
        )
        work.wait(200)
        work.check("push")  # while the network still works: logs arrive after the end
    assert network.requests > 24 * 4
    for fault in bad_network.FAILURES:
        assert sum(count for (_, name), count in network.met.items() if name == fault.name) > 3
    assert {"metrics", "status"} <= {route for route, _ in network.met}
