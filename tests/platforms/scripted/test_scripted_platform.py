"""What is peculiar to `scripted`: its script and clock, pretended results, faults, clean environments, containers."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scripted_world import SECRET, ScriptedWorld

from nni_manager.config.experiment_file import read_file
from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import BadCredentials, ConfigInvalid, InvalidInput, PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from nni_manager.platform_kit.testing.observing import accepted, insist, running, seen
from nni_manager.platforms.scripted.config import ScriptedConfig
from nni_manager.platforms.scripted.platform import ScriptedPlatform
from tests.turns_of_others import turns_of_others
from trial_runner import protocol

CONFIGS = Path(__file__).parents[3] / "configs"
START_MS = 1_000_000
MAIN = protocol.MAIN_OUTBOX
JSON = dict[str, Any]


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


class Cluster:
    """The platform on its own, without a keeper; left and entered again as often as one likes."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.recorder = Recorder("exp1")
        self.recorder.folder = directory / "exp1"
        self.recorder.code_archive = directory / "none.tar.gz"

    def make(self, *rules: JSON, **settings: Any) -> ScriptedPlatform:
        host = self.recorder.host(unreachable_keeper())
        config = ScriptedConfig.model_validate({"platform": "scripted", "trials": list(rules), **settings})
        return ScriptedPlatform(config, host, self.clock)

    def spec(self, sequence_id: int = 0, attempt: int = 1, command: str = "true") -> JobSpec:
        name = f"nni_exp_exp1_trial_t{sequence_id:04}" + (f"-{attempt}" if attempt > 1 else "")
        return JobSpec(
            name=name,
            experiment_id="exp1",
            trial_id=f"t{sequence_id:04}",
            attempt=attempt,
            sequence_id=sequence_id,
            command=command,
            parameter_record="{}",
            protocol_environment={protocol.ENV_EXPERIMENT_ID: "exp1"},
            caller_environment={},
            code_directory="/none",
            runner_environment={protocol.ENV_TOKEN: SECRET},
            attempt_directory=str(self.recorder.folder / "trials" / name.rpartition("_")[2]),
        )

    async def submit(self, platform: ScriptedPlatform, **changes: Any) -> JobHandle:
        return self.recorder.accept(await platform.submit(self.spec(**changes)))

    async def at(self, platform: ScriptedPlatform, handle: JobHandle, seconds: float) -> Observation:
        self.clock.ms = START_MS + round(seconds * 1000)
        return (await platform.observe([handle]))[handle]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ScriptedWorld]:
    async with ScriptedWorld(tmp_path) as world:
        yield world


# ------------------------------------------------------------------------------------------------ the clock


@pytest.mark.unit
async def test_job_continues_while_disconnected(cluster: Cluster) -> None:
    rule = {"delay": 2.0, "duration": 3.0}
    async with cluster.make(rule) as platform:
        handle = await cluster.submit(platform)
        assert (await cluster.at(platform, handle, 1.9)).state is JobState.PENDING
    async with cluster.make() as platform:  # what a job does was decided when it was submitted
        report = await cluster.at(platform, handle, 2)
        assert (report.state, report.started_ms) == (JobState.RUNNING, START_MS + 2000)
    async with cluster.make(rule) as platform:
        report = await cluster.at(platform, handle, 100)
        assert (report.state, report.exit_code, report.ended_ms) == (JobState.SUCCEEDED, 0, START_MS + 5000)


@pytest.mark.unit
async def test_second_submission_does_not_restart_job(cluster: Cluster) -> None:
    async with cluster.make({"duration": 3.0}) as platform:
        handle = await cluster.submit(platform)
        cluster.clock.ms += 2000
        assert await cluster.submit(platform) == handle
        assert (await cluster.at(platform, handle, 3)).state is JobState.SUCCEEDED


@pytest.mark.unit
@pytest.mark.parametrize(
    ("rule", "state", "fields"),
    [
        ({"exitCode": 3, "stderr": "no luck"}, JobState.FAILED, {"exit_code": 3, "stderr_tail": "no luck"}),
        (
            {"exitCode": 1, "reason": "OOMKilled"},
            JobState.FAILED,
            {"exit_code": 1, "native_reason": "OOMKilled", "cause": "OUT_OF_MEMORY"},
        ),
        ({"signal": 9}, JobState.FAILED, {"exit_code": None, "signal": 9}),
        ({"lost": True}, JobState.LOST, {}),
        ({"preempted": True}, JobState.PREEMPTED, {}),
        ({"preempted": True, "uncounted": True}, JobState.PREEMPTED, {"is_uncounted": True}),
        ({"cancelledByPerson": True}, JobState.CANCELLED, {}),
        ({"timedOut": True}, JobState.FAILED, {"cause": "TIMEOUT", "exit_code": None}),
        ({}, JobState.SUCCEEDED, {"exit_code": 0}),
    ],
)
async def test_every_end_that_a_rule_can_name(cluster: Cluster, rule: JSON, state: JobState, fields: JSON) -> None:
    async with cluster.make({**rule, "duration": 1.0}) as platform:
        handle = await cluster.submit(platform)
        assert (await cluster.at(platform, handle, 0.9)).state is JobState.RUNNING
        report = await cluster.at(platform, handle, 1)
    assert report.state is state
    assert {name: getattr(report, name) for name in fields} == fields


@pytest.mark.unit
async def test_the_first_rule_that_fits_counts(cluster: Cluster) -> None:
    rules = [
        {"match": {"sequence": 3, "attempt": 1}, "lost": True},
        {"match": {"every": 4}, "exitCode": 7},
        {"match": {"attempt": 2}, "preempted": True},
    ]
    found = {}
    async with cluster.make(*rules) as platform:
        for sequence_id, attempt in ((0, 1), (3, 1), (3, 2), (7, 1), (8, 2)):
            cluster.clock.ms = START_MS
            handle = await cluster.submit(platform, sequence_id=sequence_id, attempt=attempt)
            found[sequence_id, attempt] = (await cluster.at(platform, handle, 10)).state.value
    assert found == {(0, 1): "SUCCEEDED", (3, 1): "LOST", (3, 2): "FAILED", (7, 1): "FAILED", (8, 2): "PREEMPTED"}


@pytest.mark.unit
async def test_a_refused_job_leaves_nothing(cluster: Cluster) -> None:
    async with cluster.make({"refuseSubmit": "the queue is closed"}) as platform:
        with pytest.raises(SubmitRejected, match=r"^the queue is closed$"):
            await cluster.submit(platform)
    assert [path.name for path in (cluster.recorder.folder / "service").iterdir()] == ["cluster.json"]


@pytest.mark.unit
async def test_refusal_can_be_delayed(cluster: Cluster) -> None:
    async with cluster.make({"refuseSubmit": "the queue is closed", "delay": 0.05}) as platform:
        submission = asyncio.ensure_future(cluster.submit(platform))
        await asyncio.wait({submission}, timeout=0.01)
        assert not submission.done()
        with pytest.raises(SubmitRejected, match=r"^the queue is closed$"):
            await submission


@pytest.mark.unit
async def test_cancelling_simulated_jobs(cluster: Cluster) -> None:
    async with cluster.make({"duration": 5.0}) as platform:
        running, over = await cluster.submit(platform), await cluster.submit(platform, sequence_id=1)
        cluster.clock.ms = START_MS + 2000
        await platform.cancel([running], 1)
        assert (await cluster.at(platform, running, 2)).state is JobState.CANCELLED
        cluster.clock.ms = START_MS + 6000
        await platform.cancel([over], 1)
        assert (await cluster.at(platform, over, 9)).state is JobState.SUCCEEDED


@pytest.mark.unit
async def test_forgotten_jobs_leave_nothing(cluster: Cluster) -> None:
    async with cluster.make({}) as platform:
        handle = await cluster.submit(platform)
        await platform.forget([handle])
        assert (await cluster.at(platform, handle, 1)).state is JobState.LOST
    assert [path.name for path in (cluster.recorder.folder / "service").iterdir()] == ["cluster.json"]


# ------------------------------------------------------------------------------------------------ results


@pytest.mark.unit
async def test_simulated_results_come_once_and_in_time(cluster: Cluster) -> None:
    rule = {"duration": 4.0, "results": [0.1, 0.2, 0.3], "result": {"default": 1}}
    async with cluster.make(rule) as platform:
        handle = await cluster.submit(platform)
        await cluster.at(platform, handle, 2)
    async with cluster.make(rule) as platform:
        await cluster.at(platform, handle, 3)
        assert (await cluster.at(platform, handle, 4)).state is JobState.SUCCEEDED
    values = [json.loads(line)["value"] for line in cluster.recorder.lines(handle.job_name, MAIN)]
    assert values == [0.1, 0.2, 0.3, {"default": 1}]
    assert len(cluster.recorder.handed_over) == 4


@pytest.mark.unit
async def test_end_waits_for_unstored_results(cluster: Cluster) -> None:
    async with cluster.make({"duration": 1.0, "results": [1], "result": 2}) as platform:
        handle = await cluster.submit(platform)
        await cluster.at(platform, handle, 0.5)
        cluster.recorder.lose(handle.job_name, MAIN)
        with pytest.raises(PlatformUnavailable, match="sending it again"):
            await cluster.at(platform, handle, 1)
        assert (await cluster.at(platform, handle, 1)).state is JobState.SUCCEEDED
    assert len(cluster.recorder.lines(handle.job_name, MAIN)) == 2


@pytest.mark.unit
async def test_a_pretended_runner_says_its_version_once(cluster: Cluster) -> None:
    async with cluster.make({"delay": 1.0, "runnerVersion": "0.5.1"}) as platform:
        handle = await cluster.submit(platform)
        await cluster.at(platform, handle, 0.5)
        assert cluster.recorder.greetings == {}
        await cluster.at(platform, handle, 1)
    assert cluster.recorder.greetings == {handle.job_name: ("0.5.1", "")}


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.unit
async def test_other_work_goes_on_while_many_jobs_are_looked_at(cluster: Cluster) -> None:
    unknown = [JobHandle(platform="scripted", version=1, job_name=cluster.spec(number).name) for number in range(1000)]
    async with cluster.make({}) as platform, turns_of_others() as turns:
        reports = await platform.observe(unknown)
    assert {report.state for report in reports.values()} == {JobState.LOST}
    assert turns() >= 10


@pytest.mark.unit
async def test_an_outage_comes_and_goes_by_the_clock(cluster: Cluster) -> None:
    async with cluster.make({"duration": 2.0}, outage={"after": 1.0, "for": 3.0}) as platform:
        handle = await cluster.submit(platform)
        assert (await cluster.at(platform, handle, 0.9)).state is JobState.RUNNING
        with pytest.raises(
            PlatformUnavailable, match=r"until 4 s after the start of the experiment \(outage\)"
        ) as error:
            await cluster.at(platform, handle, 1)
        assert error.value.refused
        for call in (cluster.submit(platform, sequence_id=1), platform.cancel([handle], 1), platform.forget([handle])):
            with pytest.raises(PlatformUnavailable):
                await call
        assert (await cluster.at(platform, handle, 4)).state is JobState.SUCCEEDED


@pytest.mark.unit
async def test_credentials_are_refused_by_the_clock(cluster: Cluster) -> None:
    cluster.clock.ms -= 5000
    async with cluster.make(wrongCredentials={"after": 5.0, "for": 2.0}) as platform:
        cluster.clock.ms += 5000
        with pytest.raises(BadCredentials, match="until 7 s after the start of the experiment"):
            await cluster.submit(platform)
        cluster.clock.ms += 2000
        await cluster.submit(platform)


@pytest.mark.unit
async def test_late_events_come_late(cluster: Cluster) -> None:
    async with cluster.make({"delay": 1.0, "duration": 1.0}, lateEvents=0.5) as platform:
        handle = await cluster.submit(platform)
        states = [(await cluster.at(platform, handle, seconds)).state.value for seconds in (1.4, 1.5, 2.4, 2.5)]
    assert states == ["PENDING", "RUNNING", "RUNNING", "SUCCEEDED"]


@pytest.mark.unit
async def test_duplicate_events_tell_the_old_state_once_more(cluster: Cluster) -> None:
    async with cluster.make({"duration": 1.0, "result": 1}, duplicateEvents=True) as platform:
        handle = await cluster.submit(platform)
        states = [(await cluster.at(platform, handle, seconds)).state.value for seconds in (0.5, 1, 1, 1)]
        assert states == ["RUNNING", "SUCCEEDED", "RUNNING", "SUCCEEDED"]
    first, again = cluster.recorder.handed_over
    assert first == again and len(cluster.recorder.lines(handle.job_name, MAIN)) == 1
    assert cluster.recorder.woken.count(handle.job_name) >= 4


@pytest.mark.unit
@pytest.mark.looptime
async def test_host_is_woken_by_changes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def inline(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", inline)
    async with cluster.make({"delay": 60.0, "duration": 60.0}) as platform:
        handle = await cluster.submit(platform)
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        for expected_s, state in ((60, JobState.RUNNING), (120, JobState.SUCCEEDED)):
            await cluster.at(platform, handle, loop.time() - began)
            cluster.recorder.news.clear()
            await cluster.recorder.news.wait()
            assert loop.time() - began == pytest.approx(expected_s)
            assert (await cluster.at(platform, handle, expected_s)).state is state


@pytest.mark.unit
async def test_a_disk_that_cannot_be_used_is_an_outage_with_a_sentence(cluster: Cluster) -> None:
    async with cluster.make({}) as platform:
        handle = await cluster.submit(platform)
        job = cluster.recorder.folder / "service" / handle.job_name / "job.json"
        job.unlink()
        job.mkdir()
        with pytest.raises(PlatformUnavailable, match=r"job\.json: not a regular file"):
            await platform.observe([handle])


# ------------------------------------------------------------------------------------------------ containers


@pytest.mark.unit
async def test_container_starts_from_files_and_token_is_private(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with cluster.make(launch="external") as platform:
        handle = await cluster.submit(platform)
        folder = cluster.recorder.folder / "service" / handle.job_name
        start = json.loads((folder / "start.json").read_text())
        variables = variables_of(start)
        assert (await cluster.at(platform, handle, 3600)).state is JobState.PENDING
        await platform.submit(cluster.spec())
    assert variables[protocol.ENV_TOKEN] == SECRET and variables[protocol.ENV_COMMAND] == "true"
    assert SECRET not in json.dumps(start)
    assert caplog.text.count(str(folder / "start.json")) == 1 and SECRET not in caplog.text


def variables_of(start: JSON) -> dict[str, str]:
    """Of a container, from files that only their owner reads."""
    path = Path(start["environmentFile"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Path(start["command"][1]).is_file()
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


@pytest.mark.unit
async def test_unstarted_container_is_cancelled_at_once(cluster: Cluster) -> None:
    async with cluster.make(launch="external") as platform:
        waiting, taken = await cluster.submit(platform), await cluster.submit(platform, sequence_id=1)
        folder = cluster.recorder.folder / "service" / taken.job_name
        (folder / "start.json").rename(folder / "started.json")
        for handle in (waiting, taken):
            await platform.cancel([handle], 5)
        assert (await cluster.at(platform, waiting, 0)).state is JobState.CANCELLED
        assert (await cluster.at(platform, taken, 19)).state is JobState.PENDING, "its runner says how it ends"
        assert (await cluster.at(platform, taken, 20)).state is JobState.CANCELLED
        await platform.submit(cluster.spec())
        assert not (cluster.recorder.folder / "service" / waiting.job_name / "start.json").exists()


@pytest.mark.unit
async def test_variable_with_several_lines_is_refused(cluster: Cluster) -> None:
    async with cluster.make(launch="external") as platform:
        with pytest.raises(SubmitRejected, match="several lines"):
            await cluster.submit(platform, command="one\ntwo")


# ------------------------------------------------------------------------------------------------ processes


@pytest.mark.acceptance
async def test_a_process_starts_in_a_clean_environment(world: ScriptedWorld) -> None:
    async with world.make() as platform:
        environment = await world.environment(await running(world, platform, "a"))
    ours = {name for name in environment if not name.startswith("NNI_")}
    assert ours <= {"PATH", "HOME", "LANG", "PYTHONPATH", "PWD", "SHLVL", "OLDPWD", "_"}
    assert SECRET not in environment.values() and protocol.ENV_TOKEN not in environment


@pytest.mark.acceptance
async def test_results_come_before_the_end(world: ScriptedWorld) -> None:
    async with world.make() as platform:
        handle = await running(world, platform, "a")
        line = '{"type": "final", "value": 1}'
        await world.tell(handle, f"report {line}")
        await world.end(handle, 0)
        await seen(world, platform, handle, JobState.SUCCEEDED)
        assert world.recorder.lines(handle.job_name, MAIN) == [line]
        assert json.loads(world.recorder.ends[handle.job_name])["exitCode"] == 0
        assert world.recorder.greetings[handle.job_name][1] == "pull"
        await platform.forget([handle])
        assert await jobs_of(world) == {}


@pytest.mark.acceptance
async def test_job_starts_while_disconnected(world: ScriptedWorld) -> None:
    settings: JSON = {"launch": "process", "channel": "pull", "storage": str(world.storage)}
    async with world.make(**settings, trials=[{"delay": 0.3}]) as platform:
        handle = await accepted(world, platform, "a")
    assert await world.count(handle.job_name) == 1  # answers when it runs
    async with world.make(**settings) as platform:
        await seen(world, platform, handle, JobState.RUNNING)


@pytest.mark.acceptance
@pytest.mark.parametrize(("end", "state"), [("preempted", JobState.PREEMPTED), ("lost", JobState.LOST)])
async def test_preempted_job_has_no_process(world: ScriptedWorld, end: str, state: JobState) -> None:
    rule = {end: True, "duration": 0.2}
    settings: JSON = {"launch": "process", "channel": "pull", "storage": str(world.storage)}
    async with world.make(**settings, trials=[rule]) as platform:
        handle = await accepted(world, platform, "a")
        await seen(world, platform, handle, state)
        await platform.forget([handle])
        await until_gone(world, platform)


@pytest.mark.acceptance
async def test_processes_of_unknown_jobs_end_on_entering(world: ScriptedWorld) -> None:
    async with world.make() as platform:
        handle = await accepted(world, platform, "a")
    (world.folder / "service" / handle.job_name / "job.json").unlink()
    async with world.make() as platform:
        await until_gone(world, platform)


async def until_gone(world: ScriptedWorld, platform: ScriptedPlatform) -> None:
    """Its keeper keeps nothing any more."""
    async with asyncio.timeout(world.patience_s):
        while await jobs_of(world):
            world.recorder.news.clear()
            await insist(world, lambda: platform.observe([]))
            if await jobs_of(world):
                await world.recorder.news.wait()


async def jobs_of(world: ScriptedWorld) -> JSON:
    """Whatever its keeper keeps."""
    found: JSON = (await insist(world, lambda: world.keeper.request("list")))["jobs"]
    return found


# ------------------------------------------------------------------------------------------------ config


@pytest.mark.unit
@pytest.mark.parametrize(
    ("settings", "capabilities"),
    [
        ({}, (False, False, False)),
        ({"launch": "process"}, (True, True, True)),
        ({"launch": "external", "channel": "auto"}, (True, True, True)),
        ({"launch": "process", "channel": "pull"}, (True, False, True)),
    ],
)
def test_capabilities_follow_from_the_settings(settings: JSON, capabilities: tuple[bool, bool, bool]) -> None:
    found = ScriptedPlatform.capabilities_for(ScriptedConfig.model_validate(settings))
    assert (found.reads_files, found.has_runner, found.ships_code) == capabilities


@pytest.mark.unit
def test_durations_are_written_as_everywhere(tmp_path: Path) -> None:
    section = "trials: [{delay: 1m, duration: 0.5, match: {every: 2}}], outage: {for: 1h}"
    spec = read_file(written(tmp_path, section)).spec
    settings = spec.platforms[0].settings
    assert settings["trials"][0]["delay"] == 60 and settings["trials"][0]["duration"] == 0.5  # type: ignore[index]
    assert settings["outage"] == {"after": 0.0, "for": 3600}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("trials: [{delay: soon}]", "trainingService.trials[0].delay: must be a duration"),
        ("trials: [{lost: true, exitCode: 1}]", "trainingService.trials[0]: has more than one end; keep one of"),
        ("trials: [{exitcode: 1, dely: 1s}]", "trainingService.trials[0].dely: unknown field; did you mean delay?"),
        ("trials: [{match: {every: 0}}]", "trainingService.trials[0].match.every: must be at least 1"),
        ("outage: {after: 1s, for: 0s}", "trainingService.outage.for: must be above 0"),
        ("launch: container", "trainingService.launch: must be 'none', 'process' or 'external'"),
        ("machines: [{name: a, places: 1}]", "requires launch: process with machines"),
        ("launch: process, machines: [{name: a, places: 1}, {name: a, places: 2}]", "has a machine twice"),
        ("launch: process, machines: [{name: a, places: 2}], trialGpuNumber: 3", "has no machine with the 3 places"),
        ("launch: process, machines: [{name: a, places: 2}], gpuIndices: 5", "has no machine with the 1 places"),
        ("unreachable: [{machine: b}]", "has b unreachable, which is not one of its machines"),
        ("hang: {verb: enter}", "trainingService.hang.verb: must be 'submit'"),
        ("trials: [{pendingReason: [{after: 1s}]}]", "trainingService.trials[0].pendingReason[0].sentence"),
    ],
)
def test_faulty_section_is_refused_by_field(tmp_path: Path, section: str, problem: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        read_file(written(tmp_path, section))
    assert problem in str(error.value)


@pytest.mark.unit
def test_a_command_of_several_lines_needs_no_container(tmp_path: Path) -> None:
    path = written(tmp_path, "launch: external", command='"one\\ntwo"')
    spec, fine = read_file(path).spec, read_file(CONFIGS / "digits-scripted.yml").spec
    with pytest.raises(InvalidInput, match=r"^trialCommand: has several lines"):
        ScriptedPlatform.check(spec, registry.config_of(spec.platforms[0]))
    ScriptedPlatform.check(fine, registry.config_of(fine.platforms[0]))


def written(directory: Path, section: str, command: str = "echo") -> Path:
    path = directory / "experiment.yml"
    path.write_text(
        f"searchSpace: {{x: {{_type: choice, _value: [1]}}}}\ntrialCommand: {command}\ntrialConcurrency: 1\n"
        f"tuner: {{name: Random}}\ntrainingService: {{platform: scripted, {section}}}\n"
    )
    return path
