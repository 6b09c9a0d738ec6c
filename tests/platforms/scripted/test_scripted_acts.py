"""What else `scripted` acts out: reasons to wait, no room, odd outages, questions that hang. By the clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from test_scripted_platform import Cluster

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobState
from nni_manager.domain.service import Wait, WaitCode
from nni_manager.platform_kit.contract import NoRoom
from nni_manager.platforms.scripted.config import Rule, ScriptedConfig
from nni_manager.platforms.scripted.launch import process_command
from nni_manager.platforms.scripted.platform import ScriptedPlatform

pytestmark = pytest.mark.unit


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def test_why_a_job_waits_changes_over_time(cluster: Cluster) -> None:
    reasons: list[Any] = [
        {"sentence": "0/3 nodes: insufficient nvidia.com/gpu"},
        {"after": 2.0, "sentence": "the image is being pulled", "code": "IMAGE"},
    ]
    async with cluster.make({"delay": 4.0, "pendingReason": reasons}) as platform:
        handle = await cluster.submit(platform)
        first, second = [(await cluster.at(platform, handle, moment)).wait for moment in (0, 2)]
        assert first == Wait(code=WaitCode.UNSCHEDULABLE, sentence="0/3 nodes: insufficient nvidia.com/gpu")
        assert second == Wait(code=WaitCode.IMAGE, sentence="the image is being pulled")
        assert (await cluster.at(platform, handle, 4)).wait is None


@pytest.mark.parametrize("code", ["QUEUED", "HELD"])
async def test_wait_code_of_a_batch_queue_is_reported(cluster: Cluster, code: str) -> None:
    async with cluster.make(
        {"delay": 4.0, "pendingReason": [{"sentence": "7 jobs before it", "code": code}]}
    ) as platform:
        handle = await cluster.submit(platform)
        wait = (await cluster.at(platform, handle, 0)).wait
    assert wait is not None and (wait.code, wait.sentence) == (code, "7 jobs before it")


async def test_hopeless_wait_is_reported_until_hope_returns(cluster: Cluster) -> None:
    reasons: list[Any] = [{"sentence": "no such partition", "hopeless": True}, {"after": 2.0, "sentence": "next"}]
    async with cluster.make({"delay": 4.0, "pendingReason": reasons}) as platform:
        handle = await cluster.submit(platform)
        waits = [(await cluster.at(platform, handle, moment)).wait for moment in (0, 2)]
    assert [wait.is_hopeless for wait in waits if wait is not None] == [True, False]


async def test_missing_job_is_lost_once_that_is_confirmed(cluster: Cluster) -> None:
    rule = {"duration": 100.0, "overlooked": {"after": 2.0, "for": 3.0}}
    async with cluster.make(rule, confirmLoss=10.0) as platform:
        handle = await cluster.submit(platform)
        states = [(await cluster.at(platform, handle, moment)).state for moment in (1, 2, 4.9, 5)]
    assert states == [JobState.RUNNING, JobState.UNKNOWN, JobState.UNKNOWN, JobState.RUNNING]


async def test_forgotten_job_is_lost_once_that_is_confirmed(cluster: Cluster) -> None:
    async with cluster.make({"duration": 1.0, "lost": True}, confirmLoss=10.0) as platform:
        handle = await cluster.submit(platform)
        states = [(await cluster.at(platform, handle, moment)).state for moment in (0, 1, 10.9, 11)]
    assert states == [JobState.RUNNING, JobState.UNKNOWN, JobState.UNKNOWN, JobState.LOST]


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ({}, "exec python3 /a/runner.pyz"),
        ({"notice": 5.0}, "exec timeout --foreground --preserve-status -s USR1 5 python3 /a/runner.pyz"),
        (
            {"notice": 5.0, "requeue": 9.0},
            "export SLURM_JOB_ID=7; SLURM_RESTART_COUNT=0 timeout --foreground --preserve-status -s TERM 9 timeout"
            " --foreground --preserve-status -s USR1 5 python3 /a/runner.pyz; code=$?; [ $code = 143 ] || exit $code;"
            " SLURM_RESTART_COUNT=1 exec python3 /a/runner.pyz",
        ),
    ],
)
def test_batch_job_is_announced_and_run_again(rule: dict[str, Any], command: str) -> None:
    found = process_command(Path("/a/runner.pyz"), Rule.model_validate(rule), Path("/s"), 7)
    assert found == command


@pytest.mark.parametrize("rule", [{"notice": 1.0}, {"requeue": 1.0}, {"requeue": 1.0, "replicas": 2}])
def test_batch_job_without_a_process_is_refused(rule: dict[str, Any]) -> None:
    launch = "process" if "replicas" in rule else "none"
    with pytest.raises(ValidationError, match="requires launch: process, and one replica, for notice and requeue"):
        ScriptedConfig.model_validate({"platform": "scripted", "launch": launch, "trials": [rule]})


async def test_changed_wait_reason_wakes_the_host(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    reasons = [{"sentence": "one"}, {"after": 2.0, "sentence": "two"}]
    async with cluster.make({"delay": 4.0, "pendingReason": reasons}) as platform:
        handle = await cluster.submit(platform)
        monkeypatch.setattr(platform._events, "wake_in", lambda _, milliseconds: planned.append(milliseconds))
        for moment in (0, 2):
            await cluster.at(platform, handle, moment)
    assert planned == [2000, 2000]


async def test_link_and_place_are_reported(cluster: Cluster) -> None:
    async with cluster.make({"link": "https://portal/jobs/1", "place": "node 7"}) as platform:
        handle = await cluster.submit(platform)
        for moment in (0.5, 1):
            report = await cluster.at(platform, handle, moment)
            assert (report.link, report.place) == ("https://portal/jobs/1", "node 7")


async def test_no_room_lasts_for_its_span(cluster: Cluster) -> None:
    settings = {"noRoom": {"after": 1.0, "for": 1.0, "sentence": "16 of 16 GPU hours are used"}}
    async with cluster.make(**settings) as platform:
        await _submit_at(cluster, platform, 0.0)
        assert platform.room().free is None
        cluster.clock.ms += 1000
        answer = await platform.submit(cluster.spec(1))
        assert answer == NoRoom(why=Wait(code=WaitCode.QUOTA, sentence="16 of 16 GPU hours are used"))
        assert platform.room().free == 0 and platform.room().why == answer.why
        cluster.clock.ms += 1000
        assert platform.room().free is None
        await cluster.submit(platform, sequence_id=1)


async def test_waiting_jobs_are_woken_by_new_room(cluster: Cluster) -> None:
    async with cluster.make(noRoom={"for": 0.05}):
        async with asyncio.timeout(5):
            await cluster.recorder.news.wait()
    assert cluster.recorder.woken == [""]


async def test_enter_outage(cluster: Cluster) -> None:
    platform = cluster.make(enterOutage={"for": 2.0})
    with pytest.raises(PlatformUnavailable, match=r"until 2 s after the start of the experiment \(enterOutage\)"):
        await platform.__aenter__()
    cluster.clock.ms += 2000
    async with platform:
        await cluster.submit(platform)


async def test_calls_above_the_limit_are_refused_for_a_while(cluster: Cluster) -> None:
    async with cluster.make({"duration": 9.0}, retryAfter={"after": 1.0, "for": 10.0, "wait": 3.0}) as platform:
        handle = await cluster.submit(platform)
        assert (await cluster.at(platform, handle, 1)).state is JobState.RUNNING
        with pytest.raises(PlatformUnavailable, match="a pause of 3 s") as error:
            await cluster.at(platform, handle, 3.9)
        assert error.value.refused
        assert (await cluster.at(platform, handle, 4)).state is JobState.RUNNING


async def test_a_question_hangs_until_its_span_is_over(cluster: Cluster) -> None:
    async with cluster.make({"duration": 0.1}, hang={"verb": "observe", "for": 0.2}) as platform:
        handle = await cluster.submit(platform)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await platform.observe([handle])
        async with asyncio.timeout(5):
            assert (await cluster.at(platform, handle, 0.1)).state is JobState.SUCCEEDED


async def _submit_at(cluster: Cluster, platform: ScriptedPlatform, seconds: float) -> None:
    await cluster.at(platform, await cluster.submit(platform), seconds)
