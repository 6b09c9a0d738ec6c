"""Two experiments of one account stay within its limits, by the fake's log, also around an outage: in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platforms.openpai.account import OpenpaiAccount
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.openpai.platform import OpenpaiPlatform
from tests.fakes.openpai.server import RestServer
from tests.platforms import paced_account
from tests.platforms.paced_account import JOBS, RUN_S, NothingRead, check_lag, most_in, now_s, run_two

pytestmark = [pytest.mark.contract, pytest.mark.looptime, pytest.mark.thorough]
no_threads = paced_account.no_threads
_POLL_S = 5.0


class _Platform(OpenpaiPlatform):
    """Asks the fake without a network."""

    def __init__(self, server: RestServer, config: OpenpaiConfig, host: Any) -> None:
        super().__init__(config, host)
        self._server = server
        self._folders.pull = NothingRead(host)

    def _account(self) -> OpenpaiAccount:
        transport = httpx.ASGITransport(app=self._server.app)
        return OpenpaiAccount(self.config.host, "alice", transport=transport)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("no_threads")
async def test_two_experiments_keep_to_the_limits_of_their_account(tmp_path: Path) -> None:
    server = RestServer(tmp_path / "cluster", now_s)
    (tmp_path / "nfs").mkdir()
    server._set({"users": {"alice": {"tokens": ["t0ken"]}}, "storages": {"nfs": str(tmp_path / "nfs")}})
    server.behave(pretended_s=RUN_S)

    def make(recorder: Recorder) -> _Platform:
        return _Platform(server, OpenpaiConfig.model_validate(_settings(tmp_path)), recorder.host(unreachable_keeper()))

    experiments = await run_two(
        tmp_path, make, lambda is_out: server.behave(outage=503 if is_out else ""), poll_s=_POLL_S
    )
    jobs = server.cluster.jobs
    assert [job.state for job in jobs.values()] == ["SUCCEEDED"] * 2 * JOBS
    assert 429 not in {status for *_, status in server.requests}
    for kind, (most, window_s) in {"list": (120, 60), "submit": (3600, 3600), "": (600, 60)}.items():
        assert most_in((time for time, _, its, *_ in server.requests if kind in ("", its)), window_s) <= most, kind
    check_lag(experiments, {name: (job.completed_ms or 0) / 1000 for (_, name), job in jobs.items()}, 4 * _POLL_S)


def _settings(folder: Path) -> dict[str, Any]:
    return {
        "platform": "openpai",
        "host": "http://pai",
        "username": "alice",
        "token": "t0ken",
        "dockerImage": "image",
        "trialCpuNumber": 1,
        "trialMemorySize": 512,
        "storageConfigName": "nfs",
        "localStorageMountPoint": str(folder / "nfs"),
        "containerStorageMountPoint": "/mnt/nfs",
    }
