"""What is peculiar to DLWorkspace: failures that are answered with 200, ids that are ours, addresses with passwords."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from nni_manager.config.experiment_file import load
from nni_manager.domain.errors import BadCredentials, InvalidInput, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobState
from nni_manager.platform_kit.contract import Severity
from nni_manager.platform_kit.testing.observing import accepted, insist, running, seen, taken, told_end, unavailable
from nni_manager.platforms.dlts.config import DltsConfig
from nni_manager.platforms.dlts.job import ids_of, job_id
from nni_manager.platforms.dlts.platform import DltsPlatform
from tests.fakes.dlts.pod import environment
from tests.platforms.dlts.dlts_world import EMAIL, MISSED_S, PASSWORD, TEAM, DltsWorld
from tests.platforms.web_world import TOKEN
from trial_runner import protocol

pytestmark = pytest.mark.contract

_END = tuple(state for state in JobState if state.is_final)
ODD = "echo \"it's $NNI_TRIAL_JOB_ID\" `echo tick` '<% $x %>' \\\\ '$(no)'\nprintf '%s|' \"ä\""


async def test_lost_answers_make_no_second_job(world: DltsWorld) -> None:
    world.pretend()
    specs = [world.command(f"t{number:04}", "true") for number in range(100)]
    async with world.make() as platform:
        world.fake.control("behaviour", lose_answers=100)
        for spec in specs:
            with pytest.raises(PlatformUnavailable) as lost:
                await platform.submit(spec)
            assert not lost.value.refused
        for spec in specs:
            await taken(world, platform, dataclasses.replace(spec, is_repeat=True))
    assert len(world.fake.control("jobs")) == 100


@pytest.mark.parametrize("experiment_id", ["abcdefgh", "A_very-long_name_of_32_characters"[:32], "Mixed"])
@pytest.mark.parametrize("attempt", ["aaaaa", "aaaaa-12"])
def test_an_id_is_ours_alone_and_fits(experiment_id: str, attempt: str) -> None:
    name = f"nni_exp_{experiment_id}_trial_{attempt}"
    ids = {job_id(experiment_id, name, nonce) for nonce in ("", "0123456789abcdef", "X_y", "another")}
    assert len(ids) == 4
    for id in ids:
        assert len(id) <= 50 and id == id.lower() and id.replace("-", "").isalnum()
        assert ids_of(experiment_id, name).fullmatch(id)
        assert not ids_of(experiment_id, f"{name}-3").fullmatch(id)
        assert not ids_of("another", name).fullmatch(id)


async def test_repeated_submission_is_answered_with_200_and_error(world: DltsWorld) -> None:
    async with world.make() as platform:
        first = await accepted(world, platform, "a")
        assert await accepted(world, platform, "a") == first


async def test_a_refusal_in_a_200_is_one(world: DltsWorld) -> None:
    async with world.make(team="strangers") as platform:
        with pytest.raises(SubmitRejected, match="Access Denied!"):
            await insist(world, lambda: platform.submit(world.command("aaaaa", "true")))


async def test_submission_is_retried_after_database_failure(world: DltsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nni_manager.platforms.dlts.platform.job_id", lambda *_: "x" * 51)
    async with world.make() as platform:
        with pytest.raises(PlatformUnavailable, match="database") as raised:
            await platform.submit(world.command("aaaaa", "true"))
    assert raised.value.refused


async def test_an_odd_command_reaches_the_shell_unchanged(world: DltsWorld) -> None:
    async with world.make() as platform:
        handle = await taken(world, platform, world.command("aaaaa", ODD))
        await world.start_job(handle.job_name)
        assert (await seen(world, platform, handle, *_END)).state is JobState.SUCCEEDED
        printed = await platform.read_file(handle, "stdout", 0, 1000)
    assert printed.decode() == "it's aaaaa tick <% $x %> \\ $(no)\nä|"


async def test_short_lists_lose_no_job(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handles = [await accepted(world, platform, f"t{number}") for number in range(25)]
        for handle in handles:
            await world.begin(handle)
        world.fake.control("behaviour", list_most=5)
        turns = []
        for _ in range(3):
            turns.append(await insist(world, lambda: platform.observe(handles)))
            await asyncio.sleep(0.03)
    found = [{turn[handle].state for turn in turns} for handle in handles]
    assert all(states <= {JobState.RUNNING, JobState.UNKNOWN} and JobState.RUNNING in states for states in found)


async def test_list_without_database_is_invalid(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("behaviour", database=True)
        await asyncio.sleep(0.03)  # longer than an answer is given again
        with pytest.raises(PlatformUnavailable, match="database"):
            await platform.observe([handle])
        world.fake.control("behaviour", database=False)
        await seen(world, platform, handle, JobState.RUNNING)


async def test_one_answer_that_lacks_a_job_is_not_believed(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        for _ in range(2):  # a job that is seen again starts over
            world.fake.control("behaviour", queries=["list", "status"])
            await asyncio.sleep(2 * MISSED_S)
            assert (await platform.observe([handle]))[handle].state is JobState.UNKNOWN
            world.fake.control("behaviour", queries=[])
            await seen(world, platform, handle, JobState.RUNNING)
        await world.vanish(handle)
        await seen(world, platform, handle, JobState.LOST)


async def test_missing_job_with_an_exit_file_is_not_lost(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.vanish(handle)
        folder = world.directory(handle.job_name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "runner.json").write_text(json.dumps({"version": protocol.VERSION}))
        (folder / "exit.json").write_text(json.dumps({"exit_code": 0, "signal": None}))
        await platform.observe([handle])
        assert (await told_end(world, handle))["exitCode"] == 0
        states = set()
        for _ in range(4):
            states.add((await platform.observe([handle]))[handle].state)
            await asyncio.sleep(MISSED_S)
    assert JobState.UNKNOWN in states and JobState.LOST not in states


async def test_cancelled_job_has_a_stop_file(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        cancelled, other = [await accepted(world, platform, name) for name in ("a", "b")]
        await platform.cancel([cancelled], 1.0)
    there = [(world.directory(one.job_name) / protocol.STOP_FILE).exists() for one in (cancelled, other)]
    assert there == [True, False]


async def test_unknown_status_changes_nothing(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("status", id=handle.data, status="hibernating")
        await seen(world, platform, handle, JobState.UNKNOWN)
        world.fake.control("status", id=handle.data, status="")
        await seen(world, platform, handle, JobState.RUNNING)


async def test_a_paused_job_waits_and_says_so(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("status", id=handle.data, status="paused")
        report = await seen(world, platform, handle, JobState.PENDING)
        assert report.wait is not None and "resume it in the dashboard" in report.wait.sentence
        assert report.link == f"{world.fake.address}/jobs/.default/{handle.data}"


async def test_a_stop_that_crosses_a_success_leaves_it_one(world: DltsWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.end(handle, 0)
        await platform.cancel([handle], 0)
        assert (await seen(world, platform, handle, *_END)).state is JobState.SUCCEEDED


async def test_one_call_kills_many_jobs(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handles = [await running(world, platform, f"t{number}") for number in range(3)]
        before = world.remote_calls
        await platform.cancel(handles, 0)
        assert world.remote_calls - before == 1
        for handle in handles:
            await seen(world, platform, handle, JobState.CANCELLED)


@pytest.mark.parametrize("query", ["update", "select"])
async def test_kill_that_fails_in_a_200_is_asked_for_again(world: DltsWorld, query: str) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("behaviour", queries=[query])
        with pytest.raises(PlatformUnavailable, match=f"did not kill the job {handle.data}"):
            await platform.cancel([handle], 0)
        world.fake.control("behaviour", queries=[])
        await platform.cancel([handle], 0)
        await seen(world, platform, handle, JobState.CANCELLED)


async def test_kill_of_ended_and_unknown_jobs_is_quiet(world: DltsWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        killed, unknown = [await running(world, platform, f"t{number}") for number in range(2)]
        await world.vanish(unknown)
        for _ in range(2):
            await platform.cancel([killed, unknown], 0)
            await seen(world, platform, killed, JobState.CANCELLED)


async def test_job_that_account_cannot_kill_is_named(world: DltsWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.pretend()
    async with world.make() as platform:
        theirs, ours = [await running(world, platform, f"t{number}") for number in range(2)]
        world.fake.control("owner", id=theirs.data, status="bob@example.com")
        for _ in range(2):
            await platform.cancel([theirs, ours], 0)
        await seen(world, platform, ours, JobState.CANCELLED)
    said = [one.message for one in caplog.records if theirs.data in one.message]
    assert said == [
        f"DLWorkspace does not let {EMAIL} kill job {theirs.data}, which belongs to another account; "
        "kill it in the dashboard as its owner"
    ]


async def test_failure_contains_message_of_service(world: DltsWorld) -> None:
    async with world.make() as platform:
        handle = await taken(world, platform, world.command("aaaaa", "exit 3"))
        await world.start_job(handle.job_name)
        report = await seen(world, platform, handle, *_END)
    assert (report.state, report.message) == (JobState.FAILED, "DLWorkspace: pod failed")


async def test_failure_is_reported_without_unavailable_message(world: DltsWorld) -> None:
    async with world.make() as platform:
        handle = await taken(world, platform, world.command("aaaaa", "exit 3"))
        world.fake.control("behaviour", queries=["status"])
        await world.start_job(handle.job_name)
        report = await seen(world, platform, handle, *_END)
    assert (report.state, report.message) == (JobState.FAILED, "DLWorkspace: the job failed")


async def test_rotated_password_is_never_shown(world: DltsWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.set_password("users", "another-passw0rd")
        await asyncio.sleep(0.03)  # longer than an answer is given again
        with pytest.raises(BadCredentials) as refused:
            await platform.observe([handle])
        platform.renew(platform.config.model_copy(update={"password": "another-passw0rd"}))
        await seen(world, platform, handle, JobState.RUNNING)
    assert "passw0rd" not in caplog.text + str(refused.value) + repr(refused.value)
    assert "/api/v2/clusters/" in caplog.text, "addresses are logged, without what is secret in them"


async def test_429_is_obeyed(world: DltsWorld) -> None:
    """A proxy before the dashboard may say so; the dashboard never does."""
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("behaviour", throttled=1)
        await unavailable(world, lambda: platform.observe([handle]))
        since_s = asyncio.get_running_loop().time()
        await seen(world, platform, handle, JobState.RUNNING)
        assert asyncio.get_running_loop().time() - since_s >= 0.9


async def test_gpus_are_of_the_teams_kind(world: DltsWorld) -> None:
    async with world.make() as platform:
        await taken(world, platform, world.command("aaaaa", "true", gpu_number=2))
    (job,) = world.fake.control("jobs")
    assert (job["jobParams"]["gpuType"], job["jobParams"]["resourcegpu"]) == ("P40", 2)


async def test_home_folder_is_shared_by_default(world: DltsWorld) -> None:
    folders = {"localStorageMountPoint": None, "containerStorageMountPoint": None}
    world.share_home()
    async with world.make(**folders) as platform:
        handle = await taken(world, platform, world.command("aaaaa", "cat greeting.txt"))
        await world.start_job(handle.job_name)
        assert (await seen(world, platform, handle, *_END)).state is JobState.SUCCEEDED
        assert await platform.read_file(handle, "stdout", 0, 100) == world.code_files["greeting.txt"].encode()
        assert str(world.recorder.folder) in str(platform._folders.here(handle.job_name))


@pytest.mark.parametrize(
    ("changes", "subject"),
    [({"password": "wrong"}, "password"), ({"team": "strangers"}, "team"), ({"email": "bob@example.com"}, "password")],
)
async def test_preflight_names_the_fault(world: DltsWorld, changes: dict[str, Any], subject: str) -> None:
    (wrong,) = [one for one in await world.make(**changes).preflight() if one.severity is Severity.WRONG]
    assert (wrong.subject, bool(wrong.fix)) == (subject, True)
    assert PASSWORD not in str(wrong)


async def test_preflight_of_a_good_section_and_of_an_outage(world: DltsWorld) -> None:
    assert {one.severity for one in await world.make().preflight()} == {Severity.FINE}
    world.fake.control("behaviour", outage=502)
    assert [one.severity for one in await world.make().preflight()] == [Severity.AWAY]


async def test_an_empty_list_of_teams_that_hides_an_outage_is_away(world: DltsWorld) -> None:
    world.fake.control("behaviour", backend=True)
    assert [one.severity for one in await world.make().preflight()] == [Severity.AWAY]


@pytest.mark.parametrize("token", [TOKEN, "a \"quoted\" \\n 'token' ä\n\x01 of ${odd} {{ characters }}"])
async def test_a_variable_reaches_the_pod_as_it_is(world: DltsWorld, token: str) -> None:
    spec = world.command("aaaaa", "true", runner_environment={protocol.ENV_TOKEN: token})
    async with world.make() as platform:
        await taken(world, platform, spec)
    (job,) = world.fake.control("jobs")
    params = {"familyToken": "f", **job["jobParams"]}
    assert environment(params)[protocol.ENV_TOKEN] == token


_CONFIG = """\
searchSpace: {x: {_type: uniform, _value: [0, 1]}}
trialCommand: "true"
trialConcurrency: 1
tuner: {name: Random}
trainingService: {platform: dlts, dashboard: "https://dlts.example.com/"}
"""


def test_unset_fields_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = load(_CONFIG, directory=tmp_path)
    config = DltsConfig.model_validate(spec.platforms[0].settings)
    for name in ("DLWS_VC_NAME", "DLWS_USER_EMAIL", "DLTS_JOB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInput, match="team: is required and not set; add it, or set DLWS_VC_NAME"):
        DltsPlatform.check(spec, config)
    monkeypatch.setenv("DLWS_VC_NAME", TEAM)
    monkeypatch.setenv("DLWS_USER_EMAIL", EMAIL)
    monkeypatch.setenv("DLTS_JOB_TOKEN", PASSWORD)
    DltsPlatform.check(spec, config)
    assert DltsPlatform.connection_key(config) == f"dlts:{EMAIL}@https://dlts.example.com/.default/{TEAM}"
