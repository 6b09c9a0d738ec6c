"""Two experiments in one workspace keep to Azure's limits, by the fake's log, also around an outage: virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platforms.aml.account import PACES, Tokens
from nni_manager.platforms.aml.config import AmlConfig
from nni_manager.platforms.aml.mirror import Mirror
from nni_manager.platforms.aml.platform import AmlPlatform
from tests.fakes.aml.answers import Answer, Refused
from tests.fakes.aml.server import answer
from tests.fakes.aml.workspace import Lost, Workspace
from tests.platforms import paced_account
from tests.platforms.aml.aml_world import GOOD, RESOURCE, GivenTokens
from tests.platforms.paced_account import JOBS, RUN_S, NothingRead, check_lag, most_in, now_s, run_two

pytestmark = [pytest.mark.contract, pytest.mark.looptime, pytest.mark.thorough]
no_threads = paced_account.no_threads
_ADDRESS = "http://azure"


class _Direct(httpx.AsyncBaseTransport):
    """To the fake, without a network."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            told = self._answer(request, await request.aread())
        except Refused as refused:
            told = refused.answer
        except Lost:
            raise httpx.RemoteProtocolError("hung up") from None
        return httpx.Response(told.status, headers=dict(told.headers), content=told.data)

    def _answer(self, request: httpx.Request, body: bytes) -> Answer:
        path, query = unquote(request.url.path), dict(request.url.params)
        return answer(self._workspace, [GOOD], request.method, path, query, request.headers, body)


class _Platform(AmlPlatform):
    """Pretended jobs leave nothing."""

    def _tokens(self) -> Tokens:
        return GivenTokens(GOOD)


class _NothingCopied(Mirror):
    async def run(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("no_threads")
async def test_two_experiments_keep_to_the_limits_of_their_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nni_manager.platforms.aml.platform.Mirror", _NothingCopied)
    monkeypatch.setattr("nni_manager.platforms.aml.platform.Pull", NothingRead)
    workspace = Workspace(tmp_path / "workspace", RESOURCE, now_s=now_s)
    workspace.address, workspace.faults.pretend_s = _ADDRESS, RUN_S
    monkeypatch.setattr(_Platform, "transport", _Direct(workspace))

    def make(recorder: Recorder) -> Platform[Any]:
        return _Platform(AmlConfig.model_validate(_SETTINGS), recorder.host(unreachable_keeper()))

    def set_outage(is_out: bool) -> None:
        workspace.faults.outage = "refuse" if is_out else ""

    slow_poll_s = AmlPlatform.capabilities.slow_poll_s
    experiments = await run_two(tmp_path, make, set_outage, poll_s=slow_poll_s)
    assert [job["status"] for job in workspace.jobs.values()] == ["Completed"] * 2 * JOBS
    assert workspace.refused == 0, "its own limits were never met"
    asked = list(zip(workspace.times, (method for method, _ in workspace.calls), strict=True))
    for kind, is_of in (("read", lambda method: method == "GET"), ("write", lambda method: method != "GET")):
        a_second, burst = PACES[kind]
        for window_s in (1.0, 60.0):
            assert most_in((time for time, method in asked if is_of(method)), window_s) <= burst + a_second * window_s
    check_lag(experiments, {name: job["ended_s"] for name, job in workspace.jobs.items()}, 3 * slow_poll_s)


_SETTINGS = {
    "platform": "aml",
    "subscriptionId": "s1",
    "resourceGroup": "g1",
    "workspaceName": "w1",
    "computeTarget": "gpu-cluster",
    "dockerImage": "example/trial:1.0",
    "endpoint": _ADDRESS,
    "storageEndpoint": _ADDRESS,
}
