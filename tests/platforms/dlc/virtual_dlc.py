"""PAI-DLC in virtual time: requests of the real SDK reach the stand-in without a network."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import pytest
from darabonba.core import DaraCore
from darabonba.request import DaraRequest
from darabonba.response import DaraResponse
from dlc_world import DlcWorld

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platforms.dlc.config import DlcConfig
from nni_manager.platforms.dlc.platform import DlcPlatform
from nni_manager.shared_storage.pull import Pull
from tests.fakes.dlc.service import DlcService, Lost

#: Seconds that a request takes, either way.
_LATENCY_S = 0.02


class VirtualDlc(DlcWorld):
    """Its jobs are pretended: they succeed after `length_s`. Time is the loop's."""

    port = 1

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, length_s: float = 10.0) -> None:
        super().__init__(directory)
        #: Virtual time begins with the test, after its fixtures.
        self._begun_s: float | None = None
        self._length_s = length_s
        monkeypatch.setattr(DaraCore, "async_do_action", self._carry)
        monkeypatch.setattr(asyncio, "to_thread", _inline)
        monkeypatch.setattr(Pull, "run", _look_every_five_seconds)

    async def __aenter__(self) -> Self:
        for folder in (self.here, self.code, self.recorder.folder / "code"):
            folder.mkdir(parents=True)
        self.recorder.code_archive = self.directory_of_test / "code.tar.gz"
        self.recorder.code_archive.write_bytes(b"code")
        self.reset()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """It has no processes."""

    def make_service(self) -> DlcService:
        service = super().make_service()
        service._now_s = self.now_s
        service.faults.hold, service.faults.pretend_s = False, self._length_s
        return service

    def now_s(self) -> float:
        if self._begun_s is None:
            self._begun_s = time.time() - asyncio.get_running_loop().time()
        return self._begun_s + asyncio.get_running_loop().time()

    def built(self, recorder: Recorder, **changes: Any) -> DlcPlatform:
        host = recorder.host(unreachable_keeper())
        return DlcPlatform(
            DlcConfig.model_validate(self.settings(**changes)), host, clock=lambda: round(self.now_s() * 1000)
        )

    async def _carry(self, request: DaraRequest, _options: object = None) -> DaraResponse:
        await asyncio.sleep(_LATENCY_S)
        if self.service.faults.outage:
            raise aiohttp.ServerDisconnectedError
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = urlencode({name: str(value) for name, value in request.query.items() if value is not None})
        body = (request.body or "").encode()
        try:
            answer = self.service.handle(request.method, request.pathname, query, headers, body)
        except Lost:
            raise aiohttp.ServerDisconnectedError from None
        await asyncio.sleep(_LATENCY_S)
        response = DaraResponse()
        response.status_code, response.body = answer.status, json.dumps(answer.body).encode()
        response.headers = {"content-type": "application/json", **answer.headers}
        return response


async def until_ended(
    platform: Platform[Any], handles: list[JobHandle], within_s: float
) -> dict[JobHandle, Observation]:
    """Looks every ten seconds, as the scheduler does; no job may ever be LOST."""
    ended: dict[JobHandle, Observation] = {}
    async with asyncio.timeout(within_s):
        while len(ended) < len(handles):
            open_ = [handle for handle in handles if handle not in ended]
            reports = await platform.observe(open_)
            assert not [one for one in reports.values() if one.state is JobState.LOST]
            ended |= {handle: one for handle, one in reports.items() if one.state.is_final}
            await asyncio.sleep(10)
    return ended


async def _look_every_five_seconds(self: Pull) -> None:
    """Its own waits are not multiples of the resolution of virtual time."""
    while True:
        await self.look()
        await asyncio.sleep(5)


async def _inline(function: Any, *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)
