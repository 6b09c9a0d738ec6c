"""The digits example on a real service, by a daemon and the command line's API. `make live` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live_daemon import running_daemon
from tests.platforms.live import configs
from tests.platforms.live.live_world import Service

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(7200)]
_EPOCHS = 15


def test_the_digits_example_runs_to_its_end(
    live_service: Service, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    trials = request.config.getoption("live_trials")
    config = configs.digits(configs.given(live_service.config, live_service.name))
    config |= {"maxTrialNumber": trials, "nniManagerIp": live_service.address}
    listening = ("--host", "127.0.0.1", "--port", "0", "--trial-host", live_service.address)
    with running_daemon(tmp_path, *listening) as daemon:
        id_ = daemon.create(config, live_service.config.parent)
        try:
            daemon.wait(id_, "DONE", "ERROR", timeout_s=live_service.patience_s * trials)
            found = daemon.trials(id_)
        finally:  # whatever happened: what runs is ended, and nothing of it stays
            daemon.call("POST", f"/experiments/{id_}/stop")
            daemon.wait(id_, "STOPPED", timeout_s=live_service.patience_s)
    assert [trial["status"] for trial in found] == ["SUCCEEDED"] * trials, daemon.log()
    assert all(0.05 < trial["finalValue"] <= 1 and trial["intermediates"] == _EPOCHS for trial in found)
