"""`local` against a keeper that says what the test wants, in orders that are rare in life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nni_manager.domain.errors import PlatformUnavailable, StoreUnavailable
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.machines.keeper.client import Keeper, Listener
from nni_manager.machines.keeper.job_events import job_report
from nni_manager.platform_kit.testing import DeliveredLines, Recorder, unreachable_keeper
from nni_manager.platforms.local.config import LocalConfig
from nni_manager.platforms.local.platform import LocalPlatform
from trial_runner import protocol

pytestmark = pytest.mark.unit

OUTBOX = protocol.MAIN_OUTBOX
RUNNING = {"state": protocol.RUNNING, "started_ms": 1}
SUCCEEDED = {"state": protocol.ENDED, "exit_code": 0, "started_ms": 1, "ended_ms": 2}


class ScriptedKeeper(Keeper):
    """Answers `spawn` and `follow` from `jobs`, and has no files. `meanwhile`: called before an answer arrives."""

    def __init__(self) -> None:
        super().__init__(unreachable_keeper()._connect)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.listener: Listener

    async def listen(self, owner: str, listener: Listener) -> None:
        self.listener = listener
        self._needed.set()
        await listener.on_connected()

    def leave(self, owner: str) -> None:
        self.asked.append(("leave", {}))

    async def request(self, verb: str, **arguments: Any) -> Any:
        self.asked.append((verb, arguments))
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "spawn": lambda: self._spawn(arguments["name"]),
            "adopt": dict,
            "files": lambda: {"files": []},
            "read": lambda: {"data": ""},
        }
        answer = answers.get(verb, lambda: self._follow(arguments))()
        self.meanwhile()
        await asyncio.sleep(0)
        return answer

    def _spawn(self, name: str) -> dict[str, Any]:
        return self.jobs.setdefault(name, RUNNING)

    def _follow(self, arguments: dict[str, Any]) -> dict[str, Any]:
        names = arguments.get("jobs", {})
        known = {name: self.jobs[name] for name in names if name in self.jobs}
        return {"jobs": known, "unknown": [name for name in names if name not in known]}

    def followed(self) -> list[dict[str, Any]]:
        return [arguments["jobs"] for verb, arguments in self.asked if verb == "follow"]


@pytest.fixture
def keeper() -> ScriptedKeeper:
    return ScriptedKeeper()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def platform(keeper: ScriptedKeeper, recorder: Recorder) -> AsyncIterator[LocalPlatform]:
    async with LocalPlatform(LocalConfig(), recorder.host(keeper)) as platform:
        yield platform


def job(name: str = "job") -> JobSpec:
    return JobSpec(
        name=name,
        experiment_id="contract",
        trial_id="a",
        attempt=1,
        sequence_id=0,
        command="true",
        parameter_record="{}",
        protocol_environment={},
        caller_environment={},
        code_directory="/code",
        attempt_directory=f"/trials/{name}",
    )


def handle(name: str = "job") -> JobHandle:
    return JobHandle(platform="local", version=1, job_name=name, data=f"/trials/{name}")


async def state(platform: LocalPlatform, name: str = "job") -> JobState:
    return (await platform.observe([handle(name)]))[handle(name)].state


async def test_end_before_answer_of_submission_is_kept(platform: LocalPlatform, keeper: ScriptedKeeper) -> None:
    keeper.meanwhile = lambda: platform.jobs.on_ended("job", SUCCEEDED)
    await platform.submit(job())
    assert await state(platform) is JobState.SUCCEEDED


async def test_end_before_answer_of_follow_is_kept(platform: LocalPlatform, keeper: ScriptedKeeper) -> None:
    keeper.jobs["job"] = RUNNING
    keeper.meanwhile = lambda: platform.jobs.on_ended("job", SUCCEEDED)
    assert await state(platform) is JobState.SUCCEEDED


async def test_a_job_that_was_unknown_and_is_submitted_again_runs(
    platform: LocalPlatform, keeper: ScriptedKeeper
) -> None:
    assert await state(platform) is JobState.LOST
    await platform.submit(job())
    assert await state(platform) is JobState.RUNNING


async def test_job_not_named_in_time_is_queried_and_not_lost(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    await platform.submit(job())  # its handle is not stored yet
    platform.jobs.on_disconnected()
    await platform.jobs.on_connected()
    assert await state(platform) is JobState.RUNNING
    assert keeper.followed() == [{"job": {}}]


async def test_stored_lines_without_handle_are_not_read_again(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    await platform.submit(replace(job(), stored={OUTBOX: 12}))
    assert keeper.asked[-1][1]["from"] == {OUTBOX: 12}
    await recorder.host(keeper).deliver("job", OUTBOX, 0, 20, ["{}"])
    platform.jobs.on_disconnected()
    await platform.jobs.on_connected()
    assert await state(platform) is JobState.RUNNING
    assert keeper.followed() == [{"job": {OUTBOX: 20}}]


async def test_a_job_is_followed_once_on_a_connection(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    keeper.jobs["job"] = RUNNING
    recorder.accept(handle())
    await asyncio.gather(platform.jobs.on_connected(), state(platform), platform.jobs.on_connected())
    assert await state(platform) is JobState.RUNNING
    assert keeper.followed() == [{"job": {}}]


async def test_end_is_delivered_with_last_lines(platform: LocalPlatform, recorder: Recorder) -> None:
    await platform.submit(job())
    woken = len(recorder.woken)
    delivery = platform.jobs.on_lines("job", OUTBOX, 0, 2, ["1"])
    platform.jobs.on_ended("job", SUCCEEDED)
    await delivery
    assert recorder.told_ends == {"job": job_report(SUCCEEDED)}
    assert await state(platform) is JobState.SUCCEEDED
    assert len(recorder.woken) == woken, "no observation is needed"


async def test_an_end_with_lines_of_two_outboxes_waits_for_both(platform: LocalPlatform, recorder: Recorder) -> None:
    await platform.submit(job())
    deliveries = [platform.jobs.on_lines("job", name, 0, 2, ["1"]) for name in (OUTBOX, "outbox/other.jsonl")]
    platform.jobs.on_ended("job", SUCCEEDED)
    assert await state(platform) is JobState.RUNNING
    await asyncio.gather(*deliveries)
    assert recorder.told_ends == {}
    assert await state(platform) is JobState.SUCCEEDED


async def test_end_without_stored_last_lines_is_held_back(platform: LocalPlatform, recorder: Recorder) -> None:
    await platform.submit(job())
    delivery = platform.jobs.on_lines("job", OUTBOX, 7, 9, ["1"])  # what comes before them is missing
    platform.jobs.on_ended("job", SUCCEEDED)
    with pytest.raises(PlatformUnavailable):
        await delivery
    assert recorder.told_ends == {}
    assert await state(platform) is JobState.RUNNING


async def test_ended_job_is_reported_after_last_lines(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    keeper.jobs["job"] = SUCCEEDED
    await platform.submit(job())
    assert await state(platform) is JobState.UNKNOWN
    await platform.jobs.on_lines("job", OUTBOX, 0, 2, ["1"])
    platform.jobs.on_ended("job", SUCCEEDED)
    assert await state(platform) is JobState.SUCCEEDED


async def test_following_waits_for_results_that_are_being_stored(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    gate = asyncio.Event()

    async def hold(_chunk: DeliveredLines) -> None:
        await gate.wait()

    recorder.before_storing = hold
    recorder.accept(handle())
    keeper.jobs["job"] = RUNNING
    delivery = platform.jobs.on_lines("job", OUTBOX, 0, 2, ["1"])
    platform.jobs.on_disconnected()
    connected = asyncio.create_task(platform.jobs.on_connected())
    await asyncio.sleep(0)
    assert keeper.followed() == []
    gate.set()
    await asyncio.gather(delivery, connected)
    assert keeper.followed() == [{"job": {OUTBOX: 2}}]


async def test_end_waits_for_unstored_results(platform: LocalPlatform, recorder: Recorder) -> None:
    gate = asyncio.Event()

    async def fail(chunk: DeliveredLines) -> None:
        await gate.wait()
        if chunk.start == 0:
            raise OSError("no space left")

    recorder.before_storing = fail
    await platform.submit(job())
    deliveries = [platform.jobs.on_lines("job", OUTBOX, start, start + 2, ["1"]) for start in (0, 2)]
    platform.jobs.on_ended("job", SUCCEEDED)
    gate.set()
    results = await asyncio.gather(*deliveries, return_exceptions=True)
    assert [type(result) for result in results] == [OSError, PlatformUnavailable]
    assert await state(platform) is JobState.RUNNING


async def test_unreadable_store_is_read_again_on_observe(
    keeper: ScriptedKeeper, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = [StoreUnavailable("locked")]
    followed = recorder._followed

    async def fail_once(names: Sequence[str]) -> Any:
        if troubles:
            raise troubles.pop()
        return await followed(names)

    monkeypatch.setattr(recorder, "_followed", fail_once)
    recorder.accept(handle())
    keeper.jobs["job"] = RUNNING
    async with LocalPlatform(LocalConfig(), recorder.host(keeper)) as platform:
        assert not troubles and keeper.followed() == []
        assert await state(platform) is JobState.RUNNING


async def test_no_report_while_the_keeper_is_away(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    await platform.submit(job())
    recorder.woken.clear()
    platform.jobs.on_disconnected()
    assert recorder.woken == [""]
    keeper.trouble = "no such file"
    with pytest.raises(PlatformUnavailable, match="no such file"):
        await platform.observe([handle()])


async def test_every_change_except_submission_answer_wakes(
    platform: LocalPlatform, keeper: ScriptedKeeper, recorder: Recorder
) -> None:
    assert recorder.woken == [""]
    await platform.submit(job())
    assert recorder.woken == [""]
    platform.jobs.on_ended("job", SUCCEEDED)
    assert recorder.woken == ["", "job"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (RUNNING, JobState.RUNNING),
        (SUCCEEDED, JobState.SUCCEEDED),
        ({"state": protocol.ENDED, "exit_code": 3, "stderr_tail": "oops"}, JobState.FAILED),
        ({"state": protocol.ENDED, "exit_code": None, "signal": 9}, JobState.FAILED),
        ({"state": protocol.LOST}, JobState.LOST),
        ({"state": "FROZEN"}, JobState.UNKNOWN),
    ],
)
def test_states_of_the_keeper(told: dict[str, Any], expected: JobState) -> None:
    report = job_report(told)
    assert (report.state, report.exit_code, report.signal, report.stderr_tail) == (
        expected,
        told.get("exit_code"),
        told.get("signal"),
        told.get("stderr_tail", ""),
    )
