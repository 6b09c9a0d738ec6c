"""`dlc` against a service that loses answers, is late, throttles, forgets, and is asked by others, too."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from virtual_dlc import VirtualDlc, until_ended

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.domain.service import WaitCode
from nni_manager.platform_kit.contract import Severity
from nni_manager.platforms.dlc.config import DlcConfig
from nni_manager.platforms.dlc.submitting import Submission, Submissions
from tests.platforms import web_world

pytestmark = [pytest.mark.unit, pytest.mark.looptime]

insisted = functools.partial(web_world.insisted, pause_s=1.0)


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VirtualDlc]:
    async with VirtualDlc(tmp_path, monkeypatch) as world:
        yield world


async def test_lost_answers_and_late_list_create_no_second_job(world: VirtualDlc) -> None:
    world.service.faults.lost_creations, world.service.faults.list_lag_s = 100, 5.0
    async with world.make() as platform:
        specs = [world.command(f"t{number:04}", "true") for number in range(100)]
        handles = [await insisted(platform, spec) for spec in specs[:5]]
        handles += await asyncio.gather(*(insisted(platform, spec) for spec in specs[5:]))
        ended = await until_ended(platform, handles, within_s=300)
    names = Counter(job.name for job in world.service.jobs.by_id.values())
    assert names == {spec.name: 1 for spec in specs}
    assert {report.state for report in ended.values()} == {JobState.SUCCEEDED}
    assert {handle.job_name for handle in ended} == set(names)


async def test_job_that_was_not_taken_is_sent_again(world: VirtualDlc) -> None:
    async with world.make() as platform:
        world.service.faults.outage = "hang up"
        with pytest.raises(PlatformUnavailable) as raised:
            await platform.submit(world.command("aaaaa", "true"))
        assert not raised.value.refused, "the outcome is open"
        world.service.faults.outage = ""
        began = asyncio.get_running_loop().time()
        await insisted(platform, world.command("aaaaa", "true"))
    assert asyncio.get_running_loop().time() - began > 15, "the list may have been late"
    assert len(world.service.jobs.by_id) == 1


async def test_a_daemon_killed_between_submit_and_record_finds_its_job(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await platform.submit(world.command("aaaaa", "true"))
    Submissions(world.recorder.folder / "service").put(world.command("aaaaa", "").name, Submission(sent_ms=1_000))
    await world.restart()
    async with world.make() as platform:
        again = await platform.submit(dataclasses.replace(world.command("aaaaa", "true"), is_repeat=True))
    assert isinstance(handle, JobHandle) and isinstance(again, JobHandle)
    assert len(world.service.jobs.by_id) == 1
    assert world.service.jobs.by_id.keys() == {again.data.split('"')[3]}


@pytest.mark.parametrize("foreign", [{"nonce": "another"}, {"experiment_id": "another"}])
async def test_a_foreign_job_of_the_same_name_is_not_adopted(world: VirtualDlc, foreign: dict[str, str]) -> None:
    spec = world.command("aaaaa", "true")
    async with world.built(world.recorder.other("elsewhere")) as other:
        await other.submit(dataclasses.replace(spec, **foreign))  # type: ignore[arg-type]
    async with world.make() as platform:
        await platform.submit(dataclasses.replace(spec, is_repeat=True))
        assert await world.count(spec.name) == 2
        again = await platform.submit(dataclasses.replace(spec, is_repeat=True))
    assert isinstance(again, JobHandle) and await world.count(spec.name) == 2


async def test_pages_and_the_window_of_seven_days_cost_no_job(world: VirtualDlc) -> None:
    world.service.faults.page_limit, world.service.faults.pretend_s = 7, 1e9
    async with world.make() as platform:
        handles = [await insisted(platform, world.command(f"t{number:04}", "true")) for number in range(80)]
        for job in world.service.jobs.by_id.values():
            job.created_s -= 30 * 24 * 3600
        late = [dataclasses.replace(one, data=one.data.replace('"sentMs": ', '"sentMs": -')) for one in handles]
        seen: dict[str, JobState] = {}
        for _ in range(6):
            for handle, report in (await platform.observe(late)).items():
                assert report.state in (JobState.RUNNING, JobState.UNKNOWN), "further down than is read: not LOST"
                seen |= {handle.job_name: report.state} if report.state is JobState.RUNNING else {}
            await asyncio.sleep(10)
    assert len(seen) == 80, "those further down were asked for one by one"


async def test_a_job_that_the_list_does_not_show_yet_waits(world: VirtualDlc) -> None:
    world.service.faults.list_lag_s = 5.0
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        report = (await platform.observe([handle]))[handle]
        assert (report.state, report.wait and report.wait.code) == (JobState.PENDING, WaitCode.SUBMITTED)
        assert handle.data.split('"')[3] in report.link and "regionId=cn-hangzhou" in report.link


async def test_states_of_removed_and_stopped_jobs(world: VirtualDlc) -> None:
    async with world.make() as platform:
        gone, stopped = [await insisted(platform, world.command(trial, "true")) for trial in ("aaaaa", "bbbbb")]
        await platform.observe([gone, stopped])
        await world.vanish(gone)
        world.service.stop(stopped.data.split('"')[3])
        await asyncio.sleep(5)
        for _ in range(6):
            assert (await platform.observe([gone, stopped]))[gone].state is JobState.UNKNOWN
            await asyncio.sleep(10)
        reports = await platform.observe([gone, stopped])
    assert reports[gone].state is JobState.LOST
    assert reports[stopped].state is JobState.CANCELLED


async def test_unknown_status_changes_nothing(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.service.faults.statuses[handle.data.split('"')[3]] = "Defragmenting"
        assert (await platform.observe([handle]))[handle].state is JobState.UNKNOWN


async def test_flow_control_is_obeyed_for_as_long_as_it_says(world: VirtualDlc) -> None:
    async with world.make() as platform:
        world.service.faults.throttled, world.service.faults.retry_after_ms = 1, 30_000
        await insisted(platform, world.command("aaaaa", "true"))
    times = [moment for moment, _ in world.service.calls]
    assert times[2] - times[1] >= 30
    assert len(world.service.jobs.by_id) == 1


async def test_a_new_secret_is_used_from_the_next_call_on(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.service.signatures.keys = {"LTAIexample": "r0tated"}
        await asyncio.sleep(5)
        with pytest.raises(BadCredentials) as raised:
            await platform.observe([handle])
        assert "accessKeySecret" in str(raised.value)
        platform.renew(DlcConfig.model_validate(world.settings(accessKeySecret="r0tated")))
        assert (await platform.observe([handle]))[handle].state is JobState.RUNNING


async def test_disabled_access_key_is_replaced(world: VirtualDlc) -> None:
    neighbour = world.recorder.other("neighbour")
    async with world.make() as platform, world.built(neighbour) as other:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        theirs = await insisted(other, world.command("bbbbb", "true", neighbour))
        world.service.signatures.keys = {"LTAIanother": "an0ther"}
        await asyncio.sleep(5)
        with pytest.raises(BadCredentials):
            await platform.observe([handle])
        platform.renew(DlcConfig.model_validate(world.settings(accessKeyId="LTAIanother", accessKeySecret="an0ther")))
        assert (await platform.observe([handle]))[handle].state is JobState.RUNNING
        await asyncio.sleep(5)
        with pytest.raises(BadCredentials):
            await other.observe([theirs])
        other.renew(DlcConfig.model_validate(world.settings(accessKeyId="LTAIanother", accessKeySecret="an0ther")))
        ended = await until_ended(platform, [handle], within_s=60) | await until_ended(other, [theirs], within_s=60)
        assert len(world.recorder.connections.health()) == 1, "both share the new one, and the old one is closed"
    assert [report.state for report in ended.values()] == [JobState.SUCCEEDED] * 2
    assert not world.recorder.connections.health()


async def test_outage_of_two_minutes_loses_nothing(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.service.faults.outage = "hang up"
        submission = asyncio.create_task(insisted(platform, world.command("bbbbb", "true")))
        for _ in range(12):
            await asyncio.sleep(10)
            with pytest.raises(PlatformUnavailable):
                await platform.observe([handle])
        world.service.faults.outage = ""
        ended = await until_ended(platform, [handle, await submission], within_s=200)
    assert [report.state for report in ended.values()] == [JobState.SUCCEEDED] * 2
    assert len(world.service.jobs.by_id) == 2


async def test_a_stop_that_meets_an_end_is_quiet(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        await asyncio.sleep(11)
        await platform.cancel([handle], 5.0)
        await until_ended(platform, [handle], within_s=60)
        await platform.forget([handle])
        await platform.close()
    assert next(iter(world.service.jobs.by_id.values())).status == "Succeeded"


async def test_job_with_an_ended_runner_is_not_stopped(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        (world.directory(handle.job_name) / "exit.json").write_text("{}")
        await platform.forget([handle])
        await asyncio.sleep(20)
        await platform.close()
        assert [job.status for job in world.service.jobs.by_id.values()] == ["Succeeded"]
        other = await insisted(platform, world.command("bbbbb", "true"))
        await platform.forget([other])
    assert world.jobs_of(other.job_name)[0].stopped_s is not None, "its end was not reported"


async def test_clean_stops_leftover_jobs_and_removes_files(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
    folder = world.directory(handle.job_name)
    assert folder.exists()
    await world.make().clean([handle.job_name])
    assert [job.status for job in world.service.jobs.by_id.values()] == ["Stopped"]
    assert not folder.exists() and world.here.exists()


async def test_cleaning_while_it_is_entered_leaves_jobs_that_run(world: VirtualDlc) -> None:
    """As after a start of the daemon, for attempts that were given up while the service was away."""
    async with world.make() as platform:
        given_up = await insisted(platform, world.command("aaaaa", "true"))
        runs = await insisted(platform, world.command("bbbbb", "true"))
    async with world.make() as platform:
        await platform.clean([given_up.job_name])
        assert [job.status for job in world.jobs_of(given_up.job_name)] == ["Stopped"]
        assert world.directory(runs.job_name).exists()
        ended = await until_ended(platform, [runs], within_s=60)
    assert ended[runs].state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "x", "type": "Boss"}, "Boss"),
        ({"nasDataSourceId": "data2nas"}, "data2nas"),
        ({"ecsSpec": "ecs.huge"}, "ecs.huge"),
    ],
)
async def test_refusal_contains_message_of_service(world: VirtualDlc, fields: dict[str, str], words: str) -> None:
    async with world.make(**fields) as platform:
        with pytest.raises(SubmitRejected, match=words):
            await platform.submit(world.command("aaaaa", "true"))


async def test_wrong_clock_is_named_and_holds_no_service(world: VirtualDlc) -> None:
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        world.service.faults.ahead_s = 3600.0
        with pytest.raises(PlatformUnavailable, match="this machine's clock") as raised:
            await platform.submit(world.command("bbbbb", "true"))
        assert raised.value.refused, "nothing was done"
        await asyncio.sleep(10)
        with pytest.raises(PlatformUnavailable, match="this machine's clock"):
            await platform.observe([handle])
        world.service.faults.ahead_s = 0.0
        await insisted(platform, world.command("bbbbb", "true"))
    assert len(world.service.jobs.by_id) == 2


async def test_wrong_clock_at_start_makes_service_unavailable(world: VirtualDlc) -> None:
    world.service.faults.ahead_s = 3600.0
    with pytest.raises(PlatformUnavailable, match="this machine's clock"):
        async with world.make():
            pass
    [finding] = [one for one in await world.make().preflight() if one.subject == "PAI-DLC"]
    assert finding.severity is Severity.AWAY


async def test_creation_that_a_proxy_doubled_makes_one_job(world: VirtualDlc) -> None:
    world.service.faults.doubled_creations = 1
    async with world.make() as platform:
        with pytest.raises(PlatformUnavailable, match="twice") as raised:
            await platform.submit(world.command("aaaaa", "true"))
        assert not raised.value.refused, "the first may have been carried out"
        await insisted(platform, dataclasses.replace(world.command("aaaaa", "true"), is_repeat=True))
    assert len(world.service.jobs.by_id) == 1


@pytest.mark.parametrize(("answer", "is_open"), [((408, "RequestTimeout"), True), ((409, "OperationConflict"), False)])
async def test_repeatable_creation_causes_no_hold(world: VirtualDlc, answer: tuple[int, str], is_open: bool) -> None:
    world.service.faults.creations = [answer]
    async with world.make() as platform:
        with pytest.raises(PlatformUnavailable) as raised:
            await platform.submit(world.command("aaaaa", "true"))
        assert raised.value.refused is not is_open
        await insisted(platform, dataclasses.replace(world.command("aaaaa", "true"), is_repeat=True))
    assert len(world.service.jobs.by_id) == 1


@pytest.mark.parametrize("answer", [(400, "JobNotExists"), (403, "Forbidden.Job"), (404, "NotFound"), (410, "Gone")])
async def test_a_removed_job_is_lost_however_the_service_says_it(world: VirtualDlc, answer: tuple[int, str]) -> None:
    """The vendor documents no code for it. The others are told of as before."""
    world.service.faults.missing, world.service.faults.pretend_s = answer, 1e9
    async with world.make() as platform:
        gone, other = [await insisted(platform, world.command(trial, "true")) for trial in ("aaaaa", "bbbbb")]
        await platform.observe([gone, other])
        await world.vanish(gone)
        await asyncio.sleep(15)
        states = []
        for _ in range(8):
            reports = await platform.observe([gone, other])
            assert reports[other].state is JobState.RUNNING
            states.append(reports[gone].state)
            await asyncio.sleep(10)
    assert states[0] is JobState.UNKNOWN and states[-1] is JobState.LOST


@pytest.mark.parametrize("answer", [(400, "InvalidJob"), (403, "Forbidden.Job")])
async def test_refusal_for_a_job_does_not_affect_others(world: VirtualDlc, answer: tuple[int, str]) -> None:
    """A right that is missing for it says nothing of the key."""
    world.service.faults.pretend_s = 1e9
    async with world.make() as platform:
        one, other = [await insisted(platform, world.command(trial, "true")) for trial in ("aaaaa", "bbbbb")]
        await platform.observe([one, other])
        world.service.faults.refusals[world.jobs_of(one.job_name)[0].id] = answer
        await platform.cancel([one], 5.0)
        await asyncio.sleep(30)
        reports = await platform.observe([one, other])
        assert reports[other].state is JobState.RUNNING
        await insisted(platform, world.command("ccccc", "true"))


async def test_a_job_has_the_network_that_was_asked_for(world: VirtualDlc) -> None:
    network = {"vpcId": "vpc-1", "securityGroupId": "sg-1", "switchId": "vsw-1", "extendedCidrs": ["10.0.0.0/8"]}
    async with world.make(userVpc=network) as platform:
        await insisted(platform, world.command("aaaaa", "true"))
    (job,) = world.service.jobs.by_id.values()
    assert job.request["UserVpc"] == {
        "VpcId": "vpc-1",
        "SecurityGroupId": "sg-1",
        "SwitchId": "vsw-1",
        "ExtendedCIDRs": ["10.0.0.0/8"],
    }


async def test_unlisted_job_survives_a_refusal(world: VirtualDlc) -> None:
    """Both may be over at the next look."""
    world.service.faults.pretend_s = 1e9
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        await platform.observe([handle])
        (job,) = world.service.jobs.by_id.values()
        for _ in range(3):
            del world.service.jobs.by_id[job.id]
            await asyncio.sleep(10)
            assert (await platform.observe([handle]))[handle].state is JobState.UNKNOWN
            world.service.jobs.by_id[job.id] = job
            await asyncio.sleep(10)
            assert (await platform.observe([handle]))[handle].state is JobState.RUNNING


async def test_refused_stop_is_repeated_until_job_has_ended(world: VirtualDlc) -> None:
    world.service.faults.pretend_s = 1e9
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        await platform.observe([handle])
        (job,) = world.service.jobs.by_id.values()
        world.service.faults.refusals[job.id] = (403, "Forbidden.Job")
        await platform.cancel([handle], 5.0)
        for _ in range(6):
            await asyncio.sleep(30)
            assert (await platform.observe([handle]))[handle].state is JobState.RUNNING
        world.service.faults.refusals.clear()
        await asyncio.sleep(30)
        await platform.observe([handle])
        await asyncio.sleep(5)
        assert job.status == "Stopped"


async def test_stop_of_an_unknown_job_is_given_up(world: VirtualDlc) -> None:
    world.service.faults.missing, world.service.faults.pretend_s = (403, "Forbidden.Job"), 1e9
    async with world.make() as platform:
        gone, other = [await insisted(platform, world.command(trial, "true")) for trial in ("aaaaa", "bbbbb")]
        await world.vanish(gone)
        await platform.cancel([gone], 5.0)
        for _ in range(10):
            await asyncio.sleep(30)
            await platform.observe([other])
    stops = [action for _, action in world.service.calls if action == "StopJob"]
    assert 1 < len(stops) < 6


@pytest.mark.parametrize("is_told", [True, False])
async def test_the_record_of_a_restart_that_failed_tells_of_preemption(world: VirtualDlc, is_told: bool) -> None:
    """It stands in no list. It is asked for once, and a refusal leaves the job a failed one."""
    world.service.faults.pretend_s = 1e9
    async with world.make() as platform:
        handle = await insisted(platform, world.command("aaaaa", "true"))
        await platform.observe([handle])
        (job,) = world.service.jobs.by_id.values()
        world.service.preempt(job.id, sub_status="")
        job.history[-1] = dataclasses.replace(job.history[-1], code="", message="")
        if not is_told:
            world.service.faults.refusals[job.id] = (403, "Forbidden.Job")
        ended = await until_ended(platform, [handle], within_s=60)
    assert ended[handle].state is (JobState.PREEMPTED if is_told else JobState.FAILED)
    assert [action for _, action in world.service.calls].count("GetJob") == 1
