"""What is peculiar to OpenPAI: answers that get lost, names that are taken, lists that end early, its exit codes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
from typing import Any

import httpx
import pytest
import yaml

from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, SubmitRejected
from nni_manager.domain.evidence import EXIT_OTHER_STORAGE, RunnerExit, unstarted, weigh
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.domain.reason import Reason
from nni_manager.domain.service import WaitCode
from nni_manager.platform_kit.contract import NoRoom, Severity
from nni_manager.platform_kit.payload import copy_from
from nni_manager.platform_kit.testing.observing import accepted, insist, running, seen, taken
from nni_manager.platforms.openpai.account import OpenpaiAccount, paces
from nni_manager.platforms.openpai.config import OpenpaiConfig
from nni_manager.platforms.openpai.platform import OpenpaiPlatform
from nni_manager.shared_storage import mounted_storage
from tests.platforms.openpai.openpai_world import (
    PASSWORD,
    SECRET,
    STORAGE,
    THEIRS,
    USER,
    OpenpaiWorld,
    submit_as,
    users_job,
)
from trial_runner import protocol

pytestmark = pytest.mark.contract

_END = tuple(state for state in JobState if state.is_final)


async def submitted_again(world: OpenpaiWorld, platform: OpenpaiPlatform, spec: JobSpec) -> JobHandle:
    """As the scheduler does after an answer that got lost."""
    return await taken(world, platform, dataclasses.replace(spec, is_repeat=True))


async def ended(world: OpenpaiWorld, platform: OpenpaiPlatform, spec: JobSpec) -> Any:
    """How a job ends that runs by itself."""
    handle = await taken(world, platform, spec)
    await world.start_job(handle.job_name)
    return await seen(world, platform, handle, *_END)


# Submitting


async def test_lost_answers_make_no_second_job(world: OpenpaiWorld) -> None:
    world.pretend()
    specs = [world.command(f"t{number:04}", "true") for number in range(100)]
    async with world.make() as platform:
        world.fake.control("behaviour", lose_answers=100)
        for spec in specs:
            with pytest.raises(PlatformUnavailable) as lost:
                await platform.submit(spec)
            assert not lost.value.refused
        handles = [await submitted_again(world, platform, spec) for spec in specs]
    assert sorted(job["name"] for job in world.fake.control("jobs")) == [spec.name for spec in specs]
    assert [handle.data for handle in handles] == [spec.name for spec in specs]


@pytest.mark.parametrize("is_repeat", [False, True])
async def test_foreign_job_of_the_same_name_is_left_alone(world: OpenpaiWorld, is_repeat: bool) -> None:
    world.pretend()
    spec = dataclasses.replace(world.command("aaaaa", "true"), is_repeat=is_repeat)
    submit_as(world, spec.name, {"nniManager": {"experiment": spec.experiment_id, "nonce": THEIRS}})
    async with world.make() as platform:
        handle = await taken(world, platform, spec)
        again = await submitted_again(world, platform, spec)
        assert again == handle
        await platform.cancel([handle], 0)
        await seen(world, platform, handle, JobState.CANCELLED)
        await platform.clean([spec.name])
    theirs, ours = sorted(world._called(spec.name), key=lambda job: len(job["name"]))
    assert (theirs["state"], ours["state"]) == ("WAITING", "STOPPED")


async def test_unmarked_job_is_foreign(world: OpenpaiWorld) -> None:
    world.pretend()
    spec = world.command("aaaaa", "true")
    submit_as(world, spec.name, {})
    async with world.make() as platform:
        handle = await taken(world, platform, dataclasses.replace(spec, nonce="another"))
        assert handle.data != spec.name


async def test_a_storage_that_is_unknown_there_is_named(world: OpenpaiWorld) -> None:
    async with world.make(storageConfigName="nobody-has-it") as platform:
        with pytest.raises(SubmitRejected, match="storageConfigName: Storage nobody-has-it is not found"):
            await insist(world, lambda: platform.submit(world.command("aaaaa", "true")))


async def test_runner_token_is_not_readable(world: OpenpaiWorld) -> None:
    async with world.make() as platform:
        handle = await accepted(world, platform, "a")
        config = await platform._config(handle.job_name)
    assert config["secrets"] == "******"
    secret = world.secrets[-1]
    assert secret not in str(config)
    assert [path for path in world.here.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []


async def test_jobs_above_submission_limit_wait(world: OpenpaiWorld) -> None:
    world.pretend()
    platform = OpenpaiPlatform(OpenpaiConfig.model_validate(world.settings()), world.make().host)
    async with platform:
        for _ in range(paces()["submit"]._burst + 10):
            platform._lease.connection._paces["submit"].reserve()
        platform._lease.connection._paces["submit"].back_off(600)
        assert platform.room().free == 0
        answer = await platform.submit(world.command("aaaaa", "true"))
    assert isinstance(answer, NoRoom)
    assert answer.why.code is WaitCode.QUOTA and "600 s" in answer.why.sentence
    assert world.fake.control("jobs") == []


# Looking


async def test_short_lists_lose_no_job(world: OpenpaiWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handles = [await accepted(world, platform, f"t{number}") for number in range(30)]
        for handle in handles:
            await world.begin(handle)
        world.fake.control("behaviour", list_most=5)
        states = []
        for _ in range(4):
            reports = await insist(world, lambda: platform.observe(handles))
            states.append({handle: report.state for handle, report in reports.items()})
            await asyncio.sleep(0.03)
        seen_states = [{states[turn][handle] for turn in range(4)} for handle in handles]
    assert all(found <= {JobState.RUNNING, JobState.UNKNOWN} and JobState.RUNNING in found for found in seen_states)


async def test_lagging_list_loses_no_job(world: OpenpaiWorld) -> None:
    async with world.make() as platform:
        world.fake.control("behaviour", list_lag_s=60)
        handle = await accepted(world, platform, "a")
        report = (await insist(world, lambda: platform.observe([handle])))[handle]
    assert report.state is JobState.PENDING


async def test_unknown_state_changes_nothing(world: OpenpaiWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("state", user=USER, name=handle.job_name, state="HIBERNATING")
        assert (await seen(world, platform, handle, JobState.UNKNOWN)).exit_code is None
        world.fake.control("state", user=USER, name=handle.job_name, state="")
        await seen(world, platform, handle, JobState.RUNNING)


async def test_pending_job_has_reason_and_link(world: OpenpaiWorld) -> None:
    async with world.make() as platform:
        handle = await accepted(world, platform, "a")
        report = await seen(world, platform, handle, JobState.PENDING)
    assert report.wait is not None and report.wait.details == {"subState": "AttemptPreparing"}
    assert report.link == f"{world.fake.address}/job-detail.html?username={USER}&jobName={handle.job_name}"
    assert str(world.directory(handle.job_name)) in report.place


async def test_a_job_that_a_person_stopped_is_cancelled(world: OpenpaiWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.cancel_in_portal(handle)
        await seen(world, platform, handle, JobState.CANCELLED)


async def test_a_stop_that_crosses_a_success_leaves_it_one(world: OpenpaiWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        await world.end(handle, 0)
        await platform.cancel([handle], 0)
        report = await seen(world, platform, handle, *_END)
    assert report.state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        (252, JobState.PREEMPTED, "FrameworkBarrierPermanentFailed"),
        (-1200, JobState.FAILED, "UserContainerDockerOOMKilled"),
    ],
)
async def test_the_clusters_own_exit_codes(world: OpenpaiWorld, code: int, state: JobState, reason: str) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("end", user=USER, name=handle.job_name, code=code)
        report = await seen(world, platform, handle, *_END)
    assert (report.state, report.native_reason, report.exit_code) == (state, reason, None)


@pytest.mark.parametrize("code", [-1003, -1001, 137])
async def test_transient_failure_of_the_cluster_restarts_the_job(world: OpenpaiWorld, code: int) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("end", user=USER, name=handle.job_name, code=code)
        world.fake.control("state", user=USER, name=handle.job_name, subState="AttemptPreparing")
        again = await seen(world, platform, handle, JobState.PENDING, *_END)
        assert again.wait is not None and "(1 so far)" in again.wait.sentence
        world.fake.control("state", user=USER, name=handle.job_name, subState="")
        assert (await seen(world, platform, handle, JobState.RUNNING, *_END)).state is JobState.RUNNING
    assert world.entry_of(handle.job_name)["retries"] == 1


@pytest.mark.parametrize("command", ["exit 143", "kill -9 $$"])
async def test_restart_exit_codes_are_replaced(world: OpenpaiWorld, command: str) -> None:
    async with world.make() as platform:
        report = await ended(world, platform, world.command("aaaaa", command))
    assert (report.state, report.exit_code) == (JobState.FAILED, None)
    assert "above 127" in report.message
    assert world.entry_of(world.command("aaaaa", "").name)["retries"] == 0
    word = json.loads(world.recorder.ends[world.command("aaaaa", "").name])
    assert (word["exitCode"], word["signal"]) in ((143, None), (None, 9))


async def test_exit_code_of_missing_storage_from_a_command_is_its_own(world: OpenpaiWorld) -> None:
    spec = world.command("aaaaa", f"exit {EXIT_OTHER_STORAGE}")
    async with world.make() as platform:
        report = await ended(world, platform, spec)
    end = weigh(report, RunnerExit.parse(world.recorder.ends[spec.name]))
    assert end is not None and end.report.exit_code == EXIT_OTHER_STORAGE
    assert (end.report.native_reason, end.report.message, end.disagreement) == ("", "", "")


async def test_output_changes_the_reason_and_not_the_code(world: OpenpaiWorld) -> None:
    async with world.make() as platform:
        report = await ended(world, platform, world.command("aaaaa", "echo ImportError: no such >&2; exit 3"))
    assert (report.exit_code, report.native_reason) == (3, "ContainerImportError")
    assert report.stderr_tail.strip().endswith("ImportError: no such")


async def test_a_runner_that_cannot_start_says_so_through_the_cluster(world: OpenpaiWorld) -> None:
    """It is not heard; its exit code arrives as the runtime's, and its words among the last lines."""
    spec = dataclasses.replace(world.command("aaaaa", "true"), protocol_environment={})
    async with world.make() as platform:
        report = unstarted(await ended(world, platform, spec))
    assert (report.exit_code, report.cause) == (protocol.EXIT_USAGE, Reason.RUNNER_FAILED)
    assert "is not set" in report.message


# Commands

ODD = "echo \"it's $HOME\" `echo tick` '<% $parameters.x %>' \\\\ '$(no)'\nprintf '%s|' \"$NNI_TRIAL_JOB_ID\" \"ä\""


async def test_an_odd_command_reaches_the_shell_unchanged(world: OpenpaiWorld) -> None:
    async with world.make() as platform:
        report = await ended(world, platform, world.command("aaaaa", ODD))
        assert report.state is JobState.SUCCEEDED
        handle = JobHandle(platform="openpai", version=1, job_name=world.command("aaaaa", "").name)
        printed = (await platform.read_file(handle, "stdout", 0, 10_000)).decode()
    home = printed.split("it's ")[1].split(" tick")[0]
    environment = {"HOME": home, "NNI_TRIAL_JOB_ID": "aaaaa", "PATH": "/usr/bin:/bin"}
    assert printed == by_a_shell(environment)


def by_a_shell(environment: dict[str, str]) -> str:
    return subprocess.run(["/bin/sh", "-c", ODD], capture_output=True, text=True, env=environment, check=True).stdout


async def test_users_job_is_rendered_by_openpai(world: OpenpaiWorld) -> None:
    job = users_job("echo '<% $parameters.x %>' \"$NNI_TRIAL_JOB_ID\"", 'echo "it\'s `echo tick`"')
    async with world.make(openpaiConfig=job) as platform:
        report = await ended(world, platform, world.command("aaaaa", "exit 9"))
        assert report.state is JobState.SUCCEEDED
        handle = JobHandle(platform="openpai", version=1, job_name=world.command("aaaaa", "").name)
        assert await platform.read_file(handle, "stdout", 0, 100) == b"rendered aaaaa\nit's tick\n"


async def test_commands_of_a_role_are_lines_of_a_script_as_there(world: OpenpaiWorld) -> None:
    """Joined with anything else, the first would be an error of syntax and the second swallow what follows."""
    job = users_job("sleep 0.1 &", "# then it waits", "wait", "echo waited", "false | true", "echo never")
    async with world.make(openpaiConfig=job) as platform:
        report = await ended(world, platform, world.command("aaaaa", "exit 9"))
        assert (report.state, report.exit_code) == (JobState.FAILED, 1)
        handle = JobHandle(platform="openpai", version=1, job_name=world.command("aaaaa", "").name)
        assert await platform.read_file(handle, "stdout", 0, 100) == b"waited\n"


async def test_reporting_role_starts_with_other_trials_checkpoint(world: OpenpaiWorld) -> None:
    job = users_job('cat "$NNI_CHECKPOINT_DIR/state"; echo mine > "$NNI_CHECKPOINT_DIR/state"')
    async with world.make(openpaiConfig=job) as platform:
        spec = world.command("aaaaa", "none", prelude=copy_from("bbbbb"))
        earlier = world.directory(spec.name).with_name("bbbbb-checkpoint")
        earlier.mkdir(parents=True)
        (earlier / "state").write_text("of bbbbb\n")
        assert (await ended(world, platform, spec)).state is JobState.SUCCEEDED
    assert (world.directory(spec.name) / "stdout").read_text() == "of bbbbb\n"
    assert (earlier / "state").read_text() == "of bbbbb\n"


async def test_single_task_reports(world: OpenpaiWorld) -> None:
    report = 'echo \'{"type": "final", "value": 1}\' >> $NNI_OUTBOX; echo $PAI_CURRENT_TASK_ROLE_NAME'
    job = users_job(report)
    role = {**job["taskRoles"].pop("main"), "completion": {"minSucceededInstances": -1}}
    job["taskRoles"] = {"server": role, "worker": {**role, "instances": 2}}
    async with world.make(openpaiConfig=job, reporter="worker") as platform:
        assert (await ended(world, platform, world.command("aaaaa", "none"))).state is JobState.SUCCEEDED
    name = world.command("aaaaa", "").name
    folder = world.directory(name)
    assert (folder / "stdout").read_text() == "worker\n"
    assert sorted(path.name for path in (folder / "replicas").iterdir()) == ["server-0", "worker-1"]
    assert world.recorder.lines(name, "outbox/main.jsonl") == ['{"type": "final", "value": 1}']


async def test_the_file_beats_inline_fields_and_stays_as_it_was(world: OpenpaiWorld) -> None:
    file = world.code / "job.yml"
    file.write_text(yaml.safe_dump(users_job("echo from the file")))
    async with world.make(openpaiConfigFile=str(file), trialCpuNumber=7) as platform:
        file.unlink()
        await ended(world, platform, world.command("aaaaa", "echo inline"))
    assert (world.directory(world.command("aaaaa", "").name) / "stdout").read_text() == "from the file\n"
    again = world.make(openpaiConfigFile=str(file))
    async with again:
        config = await again._config(world.command("aaaaa", "").name)
    assert config["taskRoles"]["main"]["resourcePerInstance"]["cpu"] == 1


# Credentials


async def test_a_token_is_rotated_while_jobs_run(world: OpenpaiWorld) -> None:
    world.pretend()
    async with world.make(token=SECRET) as platform:
        handle = await running(world, platform, "a")
        users(world, tokens=["a-new-token"])
        await asyncio.sleep(0.03)  # longer than an answer is given again
        with pytest.raises(BadCredentials):
            await platform.observe([handle])
        platform.renew(OpenpaiConfig.model_validate(world.settings(token="a-new-token")))
        await seen(world, platform, handle, JobState.RUNNING)


async def test_expired_token_is_renewed_by_password(world: OpenpaiWorld) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        users(world, tokens=[])
        await seen(world, platform, handle, JobState.RUNNING)
    with pytest.raises(BadCredentials, match="is incorrect"):
        async with world.make(token=None, password="wrong-password"):
            pass


@pytest.mark.parametrize(
    "answer", [httpx.Response(200, json={}), httpx.Response(404, json={"message": "no such user"})]
)
async def test_old_server_is_queried_for_user_of_token(answer: httpx.Response) -> None:
    def answered(request: httpx.Request) -> httpx.Response:
        is_check = request.url.path.endswith("/tokens/check")
        return httpx.Response(404, json={"code": "NoApiError", "message": "no such API"}) if is_check else answer

    account = OpenpaiAccount("http://pai", USER, transport=httpx.MockTransport(answered))
    try:
        if answer.status_code == 200:
            await account.check('{"token": "t"}')
        else:
            with pytest.raises(BadCredentials, match="no such user"):
                await account.check('{"token": "t"}')
    finally:
        await account.close()


async def test_token_of_another_user_is_refused(world: OpenpaiWorld) -> None:
    world.fake.control("users", users={"bob": {"tokens": []}, USER: {"tokens": [SECRET]}})
    platform = world.make(username="bob", token=SECRET)
    with pytest.raises(BadCredentials, match=f"the token belongs to {USER}, but username is bob"):
        async with platform:
            await accepted(world, platform, "a")
    assert world.fake.control("jobs") == [], "its jobs would be missing from bob's list"
    [wrong] = await platform.preflight()
    assert (wrong.severity, wrong.subject) == (Severity.WRONG, "username")
    assert wrong.fix == f"set username to {USER}, or use a token of bob"


async def test_names_of_users_are_exact(world: OpenpaiWorld) -> None:
    with pytest.raises(BadCredentials, match="username is Alice"):
        async with world.make(username="Alice", token=SECRET) as platform:
            await platform.observe([])


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_calls_above_the_limit_wait(world: OpenpaiWorld, form: str) -> None:
    world.pretend()
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        world.fake.control("behaviour", refuse_calls=1, retry_after_s=2, retry_after_form=form)
        await asyncio.sleep(0.03)
        with pytest.raises(PlatformUnavailable, match="demands fewer calls"):
            await platform.observe([handle])
        await seen(world, platform, handle, JobState.RUNNING)
    refused, following = [time for time, _, kind, _, _, status in lists(world) if kind == "list"][-2:]
    assert following - refused >= 1


# Before the first job


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"token": "wrong"}, "token"),
        ({"username": "nobody", "token": SECRET}, "username"),
        ({"virtualCluster": "mars"}, "virtualCluster"),
        ({"storageConfigName": "nobody-has-it"}, "storageConfigName"),
        ({"token": None, "password": "wrong-password"}, "password"),
    ],
)
async def test_preflight_names_the_fault(world: OpenpaiWorld, changes: dict[str, Any], subject: str) -> None:
    (wrong,) = [one for one in await world.make(**changes).preflight() if one.severity is Severity.WRONG]
    assert (wrong.subject, bool(wrong.fix)) == (subject, True)
    assert not any(secret in str(wrong) for secret in (SECRET, "wrong token"))
    assert world.recorder.connections.health() == {}


async def test_preflight_of_a_good_section_and_of_an_outage(world: OpenpaiWorld) -> None:
    assert {one.severity for one in await world.make().preflight()} == {Severity.FINE}
    world.fake.control("behaviour", outage=503)
    assert [one.severity for one in await world.make().preflight()] == [Severity.AWAY]


async def test_storage_with_user_folders_is_found_by_preflight(world: OpenpaiWorld) -> None:
    """Containers see the folder of their user alone: that one is to be named."""
    users(world, tokens=[SECRET], share=False)
    (found,) = [one for one in await world.make().preflight() if one.severity is Severity.WARNING]
    assert found.subject == "localStorageMountPoint" and USER in found.fix
    (world.here / USER).mkdir()
    platform = world.make(localStorageMountPoint=str(world.here / USER))
    assert {one.severity for one in await platform.preflight()} == {Severity.FINE}
    async with platform:
        report = await ended(world, platform, world.command("aaaaa", "cat greeting.txt"))
    assert report.state is JobState.SUCCEEDED


async def test_an_unrelated_folder_is_named_by_the_first_job(
    world: OpenpaiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted_storage, "_PATIENCE_S", 0)
    unrelated = world.here.parent / "unrelated"
    unrelated.mkdir()
    async with world.make(localStorageMountPoint=str(unrelated)) as platform:
        report = await ended(world, platform, world.command("aaaaa", "true"))
    assert report.state is JobState.FAILED
    assert report.message.startswith("containerStorageMountPoint: ") and str(unrelated) in report.message


# Helpers


def users(world: OpenpaiWorld, *, tokens: list[str], share: bool = True) -> None:
    """From now on."""
    account = {"tokens": tokens, "password": PASSWORD}
    storage = {"folder": str(world.here), "share": share}
    world.fake.control("users", users={USER: account}, storages={STORAGE: storage})


def lists(world: OpenpaiWorld) -> list[tuple[float, str, str, str, str, int]]:
    return [tuple(one) for one in world.fake.control("requests")]
