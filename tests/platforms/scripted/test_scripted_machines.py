"""Places of `scripted` machines: owners, waiting jobs, and what a new daemon knows. Real keeper, real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_world import ScriptedWorld

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.service import WaitCode
from nni_manager.platform_kit.contract import NoRoom, Platform
from nni_manager.platform_kit.testing import Recorder
from nni_manager.platform_kit.testing.observing import insist, seen
from nni_manager.platforms.scripted.platform import ScriptedPlatform
from trial_runner import protocol

pytestmark = pytest.mark.acceptance

Json = dict[str, Any]
ONE = [{"name": "m1", "places": 1}]
TWO = [{"name": "m1", "places": 2}, {"name": "m2", "places": 2}]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ScriptedWorld]:
    async with ScriptedWorld(tmp_path) as world:
        yield world


def make(world: ScriptedWorld, machines: list[Json], **settings: Any) -> ScriptedPlatform:
    common = {"launch": "process", "channel": "pull", "storage": str(world.storage), "machines": machines}
    return world.make(**{**common, **settings})


async def start(world: ScriptedWorld, platform: Platform[Any], trial_id: str, **changes: Any) -> JobHandle:
    """Submits a job for which there is room."""
    answer = await insist(world, lambda: platform.submit(replace(world.job(trial_id), **changes)))
    assert isinstance(answer, JobHandle), answer
    return world.recorder.accept(answer)


async def refused(world: ScriptedWorld, platform: Platform[Any], trial_id: str, **changes: Any) -> NoRoom:
    answer = await insist(world, lambda: platform.submit(replace(world.job(trial_id), **changes)))
    assert isinstance(answer, NoRoom)
    return answer


async def report(platform: Platform[Any], handle: JobHandle) -> Observation:
    return (await platform.observe([handle]))[handle]


async def test_every_job_has_a_place_of_its_own_and_sees_it(world: ScriptedWorld) -> None:
    async with make(world, TWO) as platform:
        handles = [await start(world, platform, trial) for trial in ("a", "b", "c", "d")]
        found = [await world.environment(handle) for handle in handles]
        places = [(each["NNI_MACHINE"], each[protocol.ENV_GPUS]) for each in found]
        assert sorted(places) == [("m1", "0"), ("m1", "1"), ("m2", "0"), ("m2", "1")]
        told = [(await seen(world, platform, handle, JobState.RUNNING)).place for handle in handles]
        assert told == [f"{machine}, place {index}" for machine, index in places]


async def test_room_returns_with_end_of_last_process(world: ScriptedWorld) -> None:
    async with make(world, ONE, trialGpuNumber=1) as platform:
        first = await start(world, platform, "a")
        assert platform.room().free == 0
        why = (await refused(world, platform, "b")).why
        assert (why.code, why.sentence) == (WaitCode.GPU, f"place 0 on m1 has {first.job_name}")
        assert why.details == {"machines": {"m1": {"0": {"jobs": [first.job_name], "limit": 1}}}}
        platform.want(1)
        world.recorder.woken.clear()
        await world.end(first, 0)
        async with asyncio.timeout(world.patience_s):
            while "" not in world.recorder.woken:
                world.recorder.news.clear()
                await world.recorder.news.wait()
        assert platform.room().free == 1
        assert (await world.environment(await start(world, platform, "b")))["NNI_MACHINE"] == "m1"


async def test_new_daemon_grants_no_place_before_it_knows_running_jobs(world: ScriptedWorld) -> None:
    async with make(world, ONE) as platform:
        first = await start(world, platform, "a")
    await world.restart()
    world.recorder = _after_a_crash(world.recorder)
    async with make(world, ONE) as platform:
        assert (await refused(world, platform, "b")).why.code is WaitCode.QUOTA
        again = await start(world, platform, "a", is_repeat=True)
        assert again == first and await world.count(first.job_name) == 1


async def test_unobserved_job_releases_its_place(world: ScriptedWorld) -> None:
    """Its own experiment's adapter has gone, so only the machine's ledger gets the end."""
    async with make(world, ONE) as platform:
        first = await start(world, platform, "a")
        host = world.recorder.host(world.keeper)
        async with ScriptedPlatform(platform.config, replace(host, service="second")) as second:
            await refused(world, second, "b")
            await platform.__aexit__(None, None, None)
            await world.end(first, 0)
            async with asyncio.timeout(world.patience_s):
                while second.room().free == 0:  # noqa: ASYNC110 (no job waits in the queue, so no event is sent)
                    await asyncio.sleep(0.01)
        await platform.__aenter__()


async def test_jobs_share_a_place_by_consent(world: ScriptedWorld) -> None:
    async with make(world, ONE, trialGpuNumber=1, maxTrialNumberPerGpu=2) as platform:
        for trial in ("a", "b"):
            assert (await world.environment(await start(world, platform, trial)))[protocol.ENV_GPUS] == "0"
        await refused(world, platform, "c")


async def test_only_allowed_indices_are_used(world: ScriptedWorld) -> None:
    async with make(world, TWO, gpuIndices=[1]) as platform:
        found = [await world.environment(await start(world, platform, trial)) for trial in ("a", "b")]
        assert sorted((each["NNI_MACHINE"], each[protocol.ENV_GPUS]) for each in found) == [("m1", "1"), ("m2", "1")]
        await refused(world, platform, "c")


async def test_unreachable_machine_does_not_stop_the_other(world: ScriptedWorld) -> None:
    async with make(world, TWO, unreachable=[{"machine": "m1", "after": 0.0}]) as platform:
        found = [await world.environment(await start(world, platform, trial)) for trial in ("a", "b")]
        assert {each["NNI_MACHINE"] for each in found} == {"m2"}
        sentence = (await refused(world, platform, "c")).why.sentence
        assert sentence.startswith("place 0 on m2 has ") and "place 1 on m2 has " in sentence
        assert sentence.endswith("; m1 cannot be reached for ever (unreachable)")
    async with make(world, TWO, unreachable=[{"machine": "m2", "after": 0.0}]) as platform:
        lost = await insist(world, lambda: report(platform, _handle(world, "a")))
        assert (lost.state, lost.unreachable) == (JobState.UNKNOWN, "m2 cannot be reached for ever (unreachable)")
        assert (await world.environment(await start(world, platform, "c")))["NNI_MACHINE"] == "m1"


async def test_the_first_replica_reports_and_all_of_them_end(world: ScriptedWorld) -> None:
    rules = [{"replicas": 3}]
    async with world.make(launch="process", channel="pull", storage=str(world.storage), trials=rules) as platform:
        report = """echo "{\\"type\\": \\"final\\", \\"value\\": 1}" >> "$NNI_OUTBOX" """
        spec = world.command("a", f"{report}; echo $NNI_SYS_DIR")
        handle = world.recorder.accept(await insist(world, lambda: platform.submit(spec)))  # type: ignore[arg-type]
        await seen(world, platform, handle, JobState.SUCCEEDED)
        assert world.recorder.lines(handle.job_name, protocol.MAIN_OUTBOX) == ['{"type": "final", "value": 1}']
        own = world.directory(handle.job_name)
        folders = [own, own / "replicas" / "1", own / "replicas" / "2"]
        assert [(folder / "stdout").read_text().strip() for folder in folders] == [str(folder) for folder in folders]


def _handle(world: ScriptedWorld, trial_id: str) -> JobHandle:
    return JobHandle(platform="scripted", version=1, job_name=world.job(trial_id).name)


def _after_a_crash(before: Recorder) -> Recorder:
    """What is stored is all that is left."""
    after = Recorder(before.experiment_id)
    after.folder, after.code_archive = before.folder, before.code_archive
    return after
