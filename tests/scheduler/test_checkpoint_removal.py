"""Checkpoints that cannot be removed are tried again, and keep no others; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.experiment import NeedlessCheckpoint, PlatformSpec
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.turns.actions import CheckpointRemoval
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.training_service import TrainingService

pytestmark = [pytest.mark.unit, pytest.mark.looptime]


def _needless(trial_id: str, *services: str) -> NeedlessCheckpoint:
    handle = JobHandle(platform="local", version=1, job_name=f"nni_exp_exp1_trial_{trial_id}")
    return NeedlessCheckpoint(trial_id, tuple((service, handle) for service in services))


class Removal:
    """`stays`: trials whose checkpoints the service `a` cannot remove; `raises`: what `b` raises."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.stays: set[str] = set()
        self.raises: Exception | None = None
        self.asked: list[tuple[str, list[str]]] = []
        self.services = {name: self._service(name) for name in "ab"}
        self.removal = CheckpointRemoval(self.services, self.inbox)

    def _service(self, name: str) -> TrainingService:
        async def remove(handles: Sequence[JobHandle]) -> Mapping[JobHandle, str]:
            self.asked.append((name, [handle.job_name[-5:] for handle in handles]))
            if name == "b" and self.raises is not None:
                raise self.raises
            return {handle: "it is in use" for handle in handles if handle.job_name[-5:] in self.stays}

        capabilities = Capabilities(watches=True, reads_files=True, removes_checkpoints=True)
        platform = SimpleNamespace(capabilities=capabilities, remove_checkpoints=remove, room=lambda: None)
        service = TrainingService(
            spec=PlatformSpec(name="local", service=name, settings={}),
            make=lambda wake: cast(Any, platform),
            inbox=self.inbox,
            database=cast(Any, None),
            clock=lambda: round(asyncio.get_running_loop().time() * 1000),
            changed=lambda: None,
        )
        service.is_entered = True
        return service

    async def run(self, *checkpoints: NeedlessCheckpoint) -> list[str]:
        """The trials that are noted as being without one."""
        self.removal.begin(checkpoints)
        await self.removal.run(checkpoints)
        return list(self.inbox.take(judged_bad=(), failure=None).seen.without_checkpoints)

    async def until_free(self, trial_id: str) -> float:
        """Seconds until it may be planned again."""
        begun_s = asyncio.get_running_loop().time()
        while trial_id in self.removal.at_work:
            self.inbox.begin_turn()
            await self.inbox.wait(1000)
        return asyncio.get_running_loop().time() - begun_s


async def test_failed_removal_is_retried_with_growing_waits() -> None:
    world = Removal()
    world.stays = {"aaaaa"}
    one, other = _needless("aaaaa", "a"), _needless("bbbbb", "a")
    assert await world.run(one, other) == ["bbbbb"]
    assert world.removal.at_work == {"aaaaa"}
    waits_s = [await world.until_free("aaaaa")]
    for _ in range(4):
        assert await world.run(one, _needless("ccccc", "a")) == ["ccccc"]
        waits_s.append(await world.until_free("aaaaa"))
    assert waits_s == pytest.approx([1, 5, 30, 120, 120])
    world.stays = set()
    assert await world.run(one) == ["aaaaa"] and not world.removal.at_work


async def test_unreachable_service_does_not_block_others() -> None:
    world = Removal()
    world.raises = PlatformUnavailable("b is away")
    assert await world.run(_needless("aaaaa", "b"), _needless("bbbbb", "a", "b"), _needless("ccccc", "a")) == ["ccccc"]
    assert world.asked == [("b", ["aaaaa", "bbbbb"]), ("a", ["bbbbb", "ccccc"])]
    assert world.services["b"].trouble is None


async def test_a_fault_of_an_adapter_is_noted_at_its_service_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = Removal()
    world.raises = TypeError("a bug")
    assert await world.run(_needless("aaaaa", "b"), _needless("ccccc", "a")) == ["ccccc"]
    trouble = world.services["b"].trouble
    assert trouble is not None and "TypeError('a bug')" in trouble.sentence
    assert world.services["a"].trouble is None
    assert await world.until_free("aaaaa") == pytest.approx(1)
