"""Two experiments of one account keep their pace, by the fake's log, also around an outage: in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platforms.dlts.account import DltsAccount
from nni_manager.platforms.dlts.config import DltsConfig
from nni_manager.platforms.dlts.platform import DltsPlatform
from tests.fakes.dlts.server import Dashboard
from tests.platforms import paced_account
from tests.platforms.paced_account import JOBS, RUN_S, NothingRead, check_lag, most_in, now_s, run_two

pytestmark = [pytest.mark.contract, pytest.mark.looptime, pytest.mark.thorough]
no_threads = paced_account.no_threads
_POLL_S = 5.0
_EMAIL, _TEAM, _ADDRESS = "alice@example.com", "platform", "http://dlts/"


class _Platform(DltsPlatform):
    """Asks the fake without a network."""

    def __init__(self, dashboard: Dashboard, config: DltsConfig, host: Any) -> None:
        super().__init__(config, host)
        self._dashboard = dashboard
        self._folders.pull = NothingRead(host)

    def _account(self) -> DltsAccount:
        transport = httpx.ASGITransport(app=self._dashboard.app)
        return DltsAccount(_ADDRESS, ".default", _TEAM, _EMAIL, transport=transport)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("no_threads")
async def test_two_experiments_keep_the_pace_of_their_account(tmp_path: Path) -> None:
    dashboard = Dashboard(tmp_path / "cluster", now_s)
    dashboard._set({"users": {_EMAIL: {"password": "passw0rd", "teams": [_TEAM]}}})
    dashboard.behave(pretended_s=RUN_S)

    def make(recorder: Recorder) -> _Platform:
        return _Platform(dashboard, DltsConfig.model_validate(_SETTINGS), recorder.host(unreachable_keeper()))

    experiments = await run_two(
        tmp_path, make, lambda is_out: dashboard.behave(outage=502 if is_out else ""), poll_s=_POLL_S
    )
    jobs = dashboard.cluster.jobs
    assert [job.jobStatus for job in jobs.values()] == ["finished"] * 2 * JOBS
    lists = [time for time, _, _, path, *_ in dashboard.requests if path.startswith("/api/v2/")]
    assert most_in(lists, 60) <= 30 + 5, "and what may come at once first"
    assert most_in((request[0] for request in dashboard.requests), 60) <= 300 + 60
    names = {id: name for one in experiments for id, name in one.names.items()}
    check_lag(experiments, {names[id]: job.ended_s for id, job in jobs.items()}, 4 * _POLL_S)


_SETTINGS = {
    "platform": "dlts",
    "dashboard": _ADDRESS,
    "cluster": ".default",
    "team": _TEAM,
    "email": _EMAIL,
    "password": "passw0rd",
    "dockerImage": "image",
}
