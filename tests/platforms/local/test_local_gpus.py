"""GPUs on this machine: a real keeper, cards of a fake driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.service import WaitCode
from nni_manager.platform_kit.contract import NoRoom, Platform, Severity
from nni_manager.platform_kit.testing.observing import insist, seen
from nni_manager.platforms.local.config import LocalConfig
from nni_manager.platforms.local.platform import LocalPlatform
from tests.fake_driver import FakeDriver, OnCard
from trial_runner import protocol

pytestmark = pytest.mark.acceptance

FINAL = tuple(state for state in JobState if state.is_final)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver(tmp_path / "driver", 2)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


@pytest.fixture
async def world(tmp_path: Path, driver: FakeDriver) -> AsyncIterator[LocalWorld]:
    async with LocalWorld(tmp_path) as world:
        yield world


def make(world: LocalWorld, *, service: str = "service", **settings: Any) -> LocalPlatform:
    host = replace(world.recorder.host(world.keeper), service=service)
    return LocalPlatform(LocalConfig.model_validate({"trialGpuNumber": 1, "useActiveGpu": False, **settings}), host)


async def start(world: LocalWorld, platform: Platform[Any], trial: str, gpus: int | None = 1, **how: Any) -> JobHandle:
    answer = await insist(world, lambda: platform.submit(replace(world.job(trial), gpu_number=gpus, **how)))
    assert isinstance(answer, JobHandle), answer
    return world.recorder.accept(answer)


async def refused(world: LocalWorld, platform: Platform[Any], trial: str) -> str:
    answer = await insist(world, lambda: platform.submit(replace(world.job(trial), gpu_number=1)))
    assert isinstance(answer, NoRoom) and answer.why.code is WaitCode.GPU
    return answer.why.sentence


async def test_every_trial_has_cards_of_its_own_and_says_which(world: LocalWorld) -> None:
    async with make(world) as platform, make(world, service="local-2") as other:
        first, second = await start(world, platform, "a"), await start(world, other, "b")
        shown = [await world.environment(handle) for handle in (first, second)]
        assert [each[protocol.ENV_GPUS] for each in shown] == ["0", "1"]
        assert {each[protocol.ENV_GPU_ORDER] for each in shown} == {"PCI_BUS_ID"}
        assert (await seen(world, platform, first, JobState.RUNNING)).place == "this machine, gpu 0"
        assert platform.room().free == 0
        sentence = await refused(world, platform, "c")
        assert sentence == f"gpu 0 on this machine has {first.job_name}; gpu 1 on this machine has {second.job_name}"
        await world.end(first, 0)
        assert (await seen(world, platform, first, *FINAL)).place == "this machine, gpu 0"
        assert (await world.environment(await start(world, platform, "c")))[protocol.ENV_GPUS] == "0"


async def test_job_sets_its_number_of_cards(world: LocalWorld) -> None:
    async with make(world) as platform:
        without = await start(world, platform, "a", gpus=0)
        both = await start(world, platform, "b", gpus=2)
        shown = [(await world.environment(handle))[protocol.ENV_GPUS] for handle in (without, both)]
        assert shown == ["", "0,1"]


async def test_new_daemon_knows_the_owners_of_gpus(world: LocalWorld) -> None:
    async with make(world) as platform:
        first = await start(world, platform, "a")
    await world.restart()
    async with make(world) as platform:
        assert (await world.environment(await start(world, platform, "b")))[protocol.ENV_GPUS] == "1"
        assert await start(world, platform, "a", is_repeat=True) == first and await world.count(first.job_name) == 1
        await refused(world, platform, "c")


async def test_card_is_free_after_last_process_of_trial(world: LocalWorld) -> None:
    async with make(world, gpuIndices=[1]) as platform:
        spec = replace(world.command("a", "setsid sleep 600 & exit 0"), gpu_number=1, grace_period_s=0)
        answer = await insist(world, lambda: platform.submit(spec))
        assert isinstance(answer, JobHandle)
        await seen(world, platform, world.recorder.accept(answer), *FINAL)
        assert (await world.environment(await start(world, platform, "b")))[protocol.ENV_GPUS] == "1"


async def test_foreign_cards_are_unused_and_drawing_is_ignored(world: LocalWorld, driver: FakeDriver) -> None:
    driver.show({0: [OnCard(os.getpid(), 11264)], 1: [OnCard(os.getpid(), kind="G")]})
    async with make(world) as platform, make(world, service="local-2", useActiveGpu=True) as bold:
        assert (await world.environment(await start(world, platform, "a")))[protocol.ENV_GPUS] == "1"
        assert "gpu 0 on this machine busy: pid" in await refused(world, platform, "b")
        assert (await world.environment(await start(world, bold, "c")))[protocol.ENV_GPUS] == "0"


async def test_processes_of_our_trials_do_not_block_a_gpu(world: LocalWorld, driver: FakeDriver) -> None:
    async with make(world, gpuIndices=[0], maxTrialNumberPerGpu=2) as platform:
        first = await start(world, platform, "a")
        driver.show({0: [OnCard(world.pid(first))]})
        await platform.jobs.read_gpus(0)
        assert (await world.environment(await start(world, platform, "b")))[protocol.ENV_GPUS] == "0"
        await refused(world, platform, "c")


async def test_trials_share_a_card_as_far_as_its_memory_goes(world: LocalWorld) -> None:
    async with make(world, trialGpuMemory=7000) as platform:
        shown = [(await world.environment(await start(world, platform, t)))[protocol.ENV_GPUS] for t in "abcd"]
        assert shown == ["0", "0", "1", "1"]
        assert "gpu 0 on this machine has 2.3 GiB free of the 6.8 GiB" in await refused(world, platform, "e")


async def test_failing_driver_does_not_delay_jobs_without_gpus(world: LocalWorld, driver: FakeDriver) -> None:
    driver.fail("Driver/library version mismatch")
    async with make(world) as platform, make(world, service="local-2", trialGpuNumber=0) as without:
        sentence = await refused(world, platform, "a")
        assert sentence.startswith("the GPUs of this machine cannot be read: ") and "version mismatch" in sentence
        assert (await world.environment(await start(world, without, "b", gpus=0)))[protocol.ENV_GPUS] == ""
        driver.show({})
        platform.want(1)
        async with asyncio.timeout(world.patience_s):
            while platform.room().free == 0:
                world.recorder.news.clear()
                await world.recorder.news.wait()
        assert (await world.environment(await start(world, platform, "a")))[protocol.ENV_GPUS] == "0"


async def test_preflight_does_not_disconnect_the_running_experiment(world: LocalWorld) -> None:
    async with make(world) as platform:
        first = await start(world, platform, "a")
        [finding] = await make(world).preflight()
        assert finding.severity is Severity.FINE
        await world.end(first, 0)
        assert (await seen(world, platform, first, *FINAL)).state is JobState.SUCCEEDED


async def test_preflight_and_plan(world: LocalWorld, driver: FakeDriver) -> None:
    driver.show({1: [OnCard(os.getpid())]})
    [finding] = await make(world, gpuIndices=[2]).preflight()
    assert (finding.severity, finding.subject) == (Severity.WRONG, "GPUs of this machine")
    assert "gpuIndices contains GPU 2" in finding.sentence and finding.fix
    [finding] = await make(world).preflight()
    assert (finding.severity, finding.sentence) == (Severity.FINE, "2 read by nvidia-smi, 1 free for these trials now")
    assert await make(world, trialGpuNumber=0).preflight() == ()
    async with make(world) as platform:
        plan = await platform.plan(3)
    assert plan is not None and list(plan.places) == ["this machine, gpu 0"]
    assert "gpu 0 on this machine has trial 1" in plan.why_not["this machine"]
    async with make(world, trialGpuNumber=0) as platform:
        plan = await platform.plan(2)
    assert plan is not None and list(plan.places) == ["this machine"] * 2
