"""The connection of a training service, in virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import PlatformSpec
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


@pytest.mark.parametrize(("lasts_s", "waits_s"), [(100.0, [0.2, 0.2, 0.2]), (0.0, [0.2, 0.5, 1.0])])
async def test_waits_grow_unless_the_connection_lasted(
    monkeypatch: pytest.MonkeyPatch, lasts_s: float, waits_s: list[float]
) -> None:
    service = TrainingService(
        spec=PlatformSpec(name="hive", service="hive", settings={}),
        make=lambda wake: cast(Any, SimpleNamespace(capabilities=Capabilities(watches=True, reads_files=False))),
        inbox=Inbox(),
        database=cast(Any, None),
        clock=lambda: round(asyncio.get_running_loop().time() * 1000),
        changed=lambda: None,
    )
    begun_s: list[float] = []

    async def live() -> None:
        begun_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(lasts_s)
        raise PlatformUnavailable("the connection broke")

    monkeypatch.setattr(service, "_live", live)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4 * lasts_s + 2.5):
            await service.run()
    waited = [later - earlier - lasts_s for earlier, later in pairwise(begun_s[:4])]
    assert waited == pytest.approx(waits_s, abs=0.01)
