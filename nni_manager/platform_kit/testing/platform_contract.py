"""Every promise of `platform_kit.contract` as a test; a test's docstring gives the number of its item.

This module tests promises about jobs, `service_contract` those about the service, and `queue_contract` those about what
the service decides. A test whose feature the platform
lacks is skipped with the world's reason. Works with pytest-asyncio in any mode.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nni_manager.domain.errors import BadCredentials, NotFound
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import Platform
from nni_manager.platform_kit.testing.lagging_storage import Lag
from nni_manager.platform_kit.testing.listener import fake_listener
from nni_manager.platform_kit.testing.middlebox import Each, middlebox
from nni_manager.platform_kit.testing.observing import (
    accepted,
    finish,
    insist,
    leftovers,
    needs,
    new_leftovers,
    running,
    seen,
    taken,
    told_end,
    unavailable,
)
from nni_manager.platform_kit.testing.queue_contract import QueueContract
from nni_manager.platform_kit.testing.service_contract import ServiceContract
from nni_manager.platform_kit.testing.world import Feature, World
from trial_runner import protocol

_MANY = 100
#: Number of these jobs that run: a hundred real processes would prove no more.
_SOME = 5
_GRACE_S = 1.0
#: Turns of the loop after which submissions are cancelled, for one test.
_CUTS = ((0, 1, 2, 3), (5, 10, 100, 1000))


@pytest.mark.asyncio
class PlatformContract(ServiceContract, QueueContract):
    """The contract's tests for one platform: inherit, and override `make_world`."""

    def make_world(self, directory: Path) -> World:
        """The world of one test. `directory`: empty, and only for this test."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[World]:
        async with self.make_world(tmp_path) as world:
            yield world

    async def test_a_handle_survives_json_and_a_new_process(self, world: World) -> None:
        """Item 1: a handle survives JSON and a new process."""
        async with world.make() as platform:
            handle = await running(world, platform, "a")
        await world.restart()
        stored = JobHandle(**json.loads(json.dumps(dataclasses.asdict(handle))))
        assert stored == handle
        async with world.make() as platform:
            await seen(world, platform, stored, JobState.RUNNING)
            await world.end(stored, 0)
            await seen(world, platform, stored, JobState.SUCCEEDED)

    async def test_the_same_name_twice_is_one_job(self, world: World) -> None:
        """Item 2: the same name twice is one job."""
        async with world.make() as platform:
            first = await running(world, platform, "a")
            again = await asyncio.gather(*(platform.submit(world.job("a")) for _ in range(3)))
            other = await running(world, platform, "b")
        await world.restart()
        async with world.make() as platform:
            later = await accepted(world, platform, "a")
            assert {*again, later} == {first}
            assert other != first
            assert await world.count(first.job_name) == 1
            await seen(world, platform, later, JobState.RUNNING)
            await finish(world, platform, [later, other])

    async def test_pending_then_running_then_succeeded(self, world: World) -> None:
        """Items 3 and 14: a job is pending, then running, then succeeded; it sees its environment, its parameters and
        its code."""
        async with world.make() as platform:
            handle = await accepted(world, platform, "a")
            if Feature.PENDING not in world.absent:
                await seen(world, platform, handle, JobState.PENDING)
            await world.begin(handle)
            await seen(world, platform, handle, JobState.RUNNING)
            await _check_what_it_sees(world, handle, world.job("a"))
            await world.end(handle, 0)
            report = await seen(world, platform, handle, *_FINAL)
            assert report.state is JobState.SUCCEEDED
            assert report.exit_code in (0, None)
            assert (await platform.observe([handle]))[handle] == report  # at every call

    async def test_a_pending_job_is_seen_as_such(self, world: World) -> None:
        """Item 3: a pending job is reported as pending."""
        needs(world, Feature.PENDING)
        async with world.make() as platform:
            handle = await accepted(world, platform, "a")
            report = await seen(world, platform, handle, *JobState)
            assert report.state is JobState.PENDING

    async def test_many_handles_take_a_bounded_number_of_calls(self, world: World) -> None:
        """Item 5: an observation of many handles takes a bounded number of calls."""
        needs(world, Feature.CALLS)
        async with world.make() as platform:
            handles = [await accepted(world, platform, f"t{number}") for number in range(_MANY)]
            for handle in handles[:_SOME]:
                await world.begin(handle)
            before = world.remote_calls
            reports = await insist(world, lambda: platform.observe(handles))
            assert world.remote_calls - before <= world.max_observe_calls
            assert reports.keys() == set(handles)

    async def test_removed_job_is_lost_and_left_quietly_as_an_ended_one(self, world: World) -> None:
        """Items 6 and 10: a job removed by others is lost; cancelling and forgetting ended or missing jobs is
        ignored."""
        needs(world, Feature.VANISH)
        async with world.make() as platform:
            gone, ended = await running(world, platform, "a"), await running(world, platform, "b")
            await world.vanish(gone)
            await seen(world, platform, gone, JobState.LOST)
            await seen(world, platform, ended, JobState.RUNNING)
            await world.end(ended, 0)
            report = await seen(world, platform, ended, JobState.SUCCEEDED)
            await platform.cancel([ended], _GRACE_S)
            await platform.cancel([gone], _GRACE_S)
            again = await seen(world, platform, ended, *_ENDED)
            assert replace(again, started_ms=report.started_ms, ended_ms=report.ended_ms) == report  # reported again
            await platform.forget([ended, gone])
            await platform.forget([ended, gone])

    async def test_an_outage_changes_nothing(self, world: World) -> None:
        """Item 7: an outage changes nothing."""
        needs(world, Feature.OUTAGE)
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            await world.start_outage()
            await unavailable(world, lambda: platform.observe([handle]))
            await unavailable(world, lambda: platform.submit(world.job("b")))
            await world.end_outage()
            await seen(world, platform, handle, JobState.RUNNING)
            other = await running(world, platform, "b")
            assert await world.count(other.job_name) == 1
            await finish(world, platform, [handle, other])

    async def test_a_job_that_ends_during_an_outage_is_seen_after_it(self, world: World) -> None:
        """Item 7: a job that ends during an outage is seen after it."""
        needs(world, Feature.OUTAGE)
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            await world.start_outage()
            await unavailable(world, lambda: platform.observe([handle]))
            await world.end(handle, 0)
            await world.end_outage()
            await seen(world, platform, handle, *_ENDED)

    async def test_wrong_credentials_are_refused_and_not_shown(self, world: World) -> None:
        """Item 8: wrong credentials are reported, and no text shows them."""
        needs(world, Feature.CREDENTIALS)
        with pytest.raises(BadCredentials) as refused:
            async with world.make_unauthorised() as platform:
                await platform.submit(world.job("a"))
        assert str(refused.value)
        _check_no_secret(world, str(refused.value), repr(refused.value))

    async def test_a_cancelled_job_ends(self, world: World) -> None:
        """Item 9: a cancelled job ends."""
        async with world.make() as platform:
            handle, other = await running(world, platform, "a"), await running(world, platform, "b")
            await platform.cancel([handle], _GRACE_S)
            report = await seen(world, platform, handle, *_FINAL)
            assert report.state in (JobState.CANCELLED, JobState.FAILED)
            await seen(world, platform, other, JobState.RUNNING)

    async def test_leaving_lets_jobs_run_and_end(self, world: World) -> None:
        """Item 11: jobs continue when the adapter is exited; an end meanwhile is seen later."""
        async with world.make() as platform:
            handle, ended = await running(world, platform, "a"), await running(world, platform, "b")
        await world.end(ended, 0)
        async with world.make() as platform:
            await seen(world, platform, ended, *_ENDED)
            await seen(world, platform, handle, JobState.RUNNING)
            await world.end(handle, 0)
            await seen(world, platform, handle, JobState.SUCCEEDED)

    @pytest.mark.parametrize("cuts", _CUTS, ids=str)
    async def test_a_submission_cut_off_leaves_no_second_job(self, world: World, cuts: tuple[int, ...]) -> None:
        """Item 12: a cancelled submission leaves no second job."""
        async with world.make() as platform:
            await running(world, platform, "a")  # it is connected now
            for turns in cuts:
                trial_id = f"b{turns}"
                await _submit_and_cut_off(world, platform, trial_id, turns)
                handle = await running(world, platform, trial_id)
                assert await world.count(handle.job_name) == 1, f"after {turns} turns"
                await finish(world, platform, [handle])
        _collect_cut_connections()

    async def test_every_documented_state_is_in_the_table(self, world: World) -> None:
        """Item 13: every documented state is in the table."""
        needs(world, Feature.STATES)
        assert world.native_states
        assert [native for native in world.native_states if world.state_of(native) is JobState.UNKNOWN] == []
        assert world.state_of("no such state") is JobState.UNKNOWN

    async def test_a_log_is_read_from_any_offset(self, world: World) -> None:
        """Item 15: a log can be read from any offset."""
        needs(world, Feature.LOGS)
        async with world.make() as platform:
            if not platform.capabilities.reads_files:
                pytest.skip("the platform declares that it reads no files")
            handle = await running(world, platform, "a")
            await world.write_log(handle, "one")
            await world.write_log(handle, "two")
            reads = {(0, 100): b"one\ntwo\n", (0, 2): b"on", (4, 100): b"two\n", (-3, 100): b"wo\n", (8, 100): b""}
            reads[-100, 100] = b"one\ntwo\n"
            for (offset, limit), expected in reads.items():
                assert await platform.read_file(handle, world.log_name, offset, limit) == expected
            assert world.log_name in await platform.list_files(handle)
            for name in ("no-such-file", "../outside", "/etc/hostname"):
                with pytest.raises(NotFound):
                    await platform.read_file(handle, name, 0, 100)

    @pytest.mark.parametrize("lag", Lag)
    async def test_storage_that_lags_costs_no_result(self, world: World, lag: Lag) -> None:
        """Item 28: storage that lags costs no result."""
        needs(world, Feature.STORAGE)
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            await world.report(handle, _LINES[0])
            async with asyncio.timeout(world.patience_s):
                await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 1)
            with world.lag(lag) as storage:
                await world.report(handle, _LINES[1])
                await world.end(handle, 0)
                await seen(world, platform, handle, *_ENDED)
                word = await told_end(world, handle)
                storage.settle()
                async with asyncio.timeout(world.patience_s):
                    found = await world.recorder.until_lines(handle.job_name, protocol.MAIN_OUTBOX, 2)
        assert tuple(found) == _LINES
        size = sum(len(line) + 1 for line in _LINES)
        assert word["outboxes"] == {protocol.MAIN_OUTBOX: size}, "the end says what has to come"

    async def test_nothing_is_left_after_leaving(self, world: World) -> None:
        """Item 16: nothing is left after leaving."""
        world.job("a")  # files that the world opens for it belong to the world
        before = leftovers()
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            if platform.capabilities.reads_files and Feature.LOGS not in world.absent:
                await platform.read_file(handle, world.log_name, 0, 100)
        assert await new_leftovers(before, 2.0) == frozenset()

    async def test_nothing_is_left_after_leaving_during_an_outage(self, world: World) -> None:
        """Item 16: nothing is left after leaving during an outage."""
        needs(world, Feature.OUTAGE)
        world.job("a")
        before = leftovers()
        async with world.make() as platform:
            handle = await running(world, platform, "a")
            await world.start_outage()
            await unavailable(world, lambda: platform.observe([handle]))
        assert await new_leftovers(before, 2.0) == frozenset()

    async def test_failed_job_has_exit_code_and_reason_without_secrets(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Items 4 and 17: another exit code than 0 is a failure with code and reason; no secret is shown."""
        caplog.set_level(logging.DEBUG)
        platform, spec, told = world.make(), world.job("a"), list[object]()
        async with platform:
            handle = await running(world, platform, "a")
            if Feature.OUTAGE not in world.absent:
                await world.start_outage()
                told.append(await unavailable(world, lambda: platform.observe([handle])))
                await world.end_outage()
                await seen(world, platform, handle, JobState.RUNNING)
            await world.end(handle, 3)
            report = await seen(world, platform, handle, *_FINAL)
            assert report.state is JobState.FAILED
            assert report.native_reason or report.message or report.stderr_tail
            assert report.exit_code == (None if Feature.EXIT_CODE in world.absent else 3)
        _check_no_secret(world, *map(repr, (platform, platform.host, spec, handle, report, *told)), caplog.text)

    async def test_proxies_between_runner_and_listener_cost_nothing(self, world: World) -> None:
        """Item 29: boxes that answer in HTTP cost no result; every request to the trial listener meets some of them,
        before and after it went through."""
        needs(world, Feature.PUSH)
        with fake_listener() as listener, middlebox(listener.port, Each(_FAULTS_A_ROUTE)) as box:
            listener.decides = True
            async with world.make_pushing() as platform:
                spec = world.pushing_job("a", _REPORTING, listener.variables(box.port))
                handle = await taken(world, platform, spec)
                report = await seen(world, platform, handle, *_FINAL)
        assert report.exit_code == (None if Feature.EXIT_CODE in world.absent else 3)
        assert listener.values() == [1, 2, 3]
        assert listener.logs["stdout"] == b"printed\n"
        ends = [status for status in listener.statuses if status["event"] == "exited"]
        assert {(end["exitCode"], tuple(end["undelivered"])) for end in ends} == {(3, ())}
        met = {route for route, _ in box.met}
        assert {"version", "status"} <= met and met & {"metrics", protocol.TOGETHER}, met


_FAULTS_A_ROUTE = 3
#: A command with known results, output and exit code.
_REPORTING = (
    'for n in 1 2 3; do echo \'{"type": "intermediate", "value": \'$n\'}\' >> $NNI_OUTBOX; done; echo printed; exit 3'
)
_LINES = ('{"type":"intermediate","value":1}', '{"type":"final","value":2}')
_FINAL = tuple(state for state in JobState if state.is_final)
_ENDED = (JobState.SUCCEEDED,)
_ALWAYS_SET = (
    protocol.ENV_PLATFORM,
    protocol.ENV_EXPERIMENT_ID,
    protocol.ENV_TRIAL_ID,
    protocol.ENV_SEQUENCE_ID,
    protocol.ENV_SYSTEM_DIR,
    protocol.ENV_OUTPUT_DIR,
    protocol.ENV_CODE_DIR,
    protocol.ENV_OUTBOX,
)


async def _check_what_it_sees(world: World, handle: JobHandle, spec: JobSpec) -> None:
    environment = await world.environment(handle)
    assert environment.items() >= spec.protocol_environment.items()
    assert [name for name in _ALWAYS_SET if not environment.get(name)] == []
    assert environment[protocol.ENV_PLATFORM] == handle.platform
    assert await world.parameter_record(handle) == spec.parameter_record
    for name, text in world.code_files.items():
        assert await world.code_file(handle, name) == text


def _collect_cut_connections() -> None:
    """Closes connections that HTTP libraries lost: anyio 4, which httpx uses, forgets a connection if connecting is
    cancelled at the moment of its completion."""
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


async def _submit_and_cut_off(world: World, platform: Platform[Any], trial_id: str, turns: int) -> None:
    """Cancels a submission after some turns of the loop; it may have ended before."""
    submission = asyncio.create_task(platform.submit(world.job(trial_id)))
    for _ in range(turns):
        await asyncio.sleep(0)
    submission.cancel()
    with suppress(asyncio.CancelledError):
        await submission


def _check_no_secret(world: World, *texts: str) -> None:
    assert world.secrets
    assert [secret for secret in world.secrets if any(secret in text for text in texts)] == []
