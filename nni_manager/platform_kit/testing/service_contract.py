"""Tests of a training service as a whole: outages, no room, hanging, sharing and cleaning.

The second part of the suite, after `queue_contract`; `platform_contract` inherits it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from nni_manager.domain.errors import PlatformUnavailable, SubmitRejected
from nni_manager.domain.job import JobHandle, JobSpec, JobState
from nni_manager.platform_kit.contract import NoRoom, Platform
from nni_manager.platform_kit.testing.listener import fake_listener
from nni_manager.platform_kit.testing.observing import (
    accepted,
    check_results,
    check_told,
    finish,
    insist,
    leftovers,
    needs,
    new_leftovers,
    result_line,
    run,
    running,
    seen,
    seen_as,
    taken,
    unavailable,
)
from nni_manager.platform_kit.testing.world import Feature, World

_NONCE = "0123456789abcdef"
_GRACE_S = 1.0
#: Seconds after which an unanswered call is cancelled here.
_GIVEN_UP_S = 0.3
#: Maximum seconds for exiting, as in the scheduler.
_EXIT_S = 10.0
_LOOK_AGAIN_S = 0.02
#: A command with known results.
_REPORTING = 'for n in 1 2; do echo \'{"type": "intermediate", "value": \'$n\'}\' >> $NNI_OUTBOX; done'


@pytest.mark.asyncio
class ServiceContract:
    """The contract's tests of a training service as a whole; inherit `PlatformContract`, which has the rest."""

    async def test_entering_during_an_outage_works_after_it(self, world: World) -> None:
        """Item 18: an adapter that was entered during an outage works after it."""
        needs(world, Feature.OUTAGE)
        async with world.make() as platform:
            handle = await running(world, platform, "a")
        await world.restart()
        world.job("b")  # files that the world opens for it belong to the world
        before, platform = leftovers(), world.make()
        await world.start_outage()
        if is_entered := await _enters(platform):
            await unavailable(world, lambda: platform.observe([handle]))
        else:
            assert await new_leftovers(before, 2.0) == frozenset(), "a retry finds no leftovers"
        await world.end_outage()
        if not is_entered:
            await insist(world, platform.__aenter__)
        try:
            await seen(world, platform, handle, JobState.RUNNING)
            other = await running(world, platform, "b")
            assert [await world.count(one.job_name) for one in (handle, other)] == [1, 1]
            await finish(world, platform, [handle, other])
        finally:
            await platform.__aexit__(None, None, None)

    async def test_unreachable_machine_does_not_stop_the_other(self, world: World) -> None:
        """Item 19: one machine is unreachable, and the other continues."""
        needs(world, Feature.MACHINES)
        async with world.make_on_machines() as platform:
            cut_off, other = await running(world, platform, "a"), await running(world, platform, "b")
            await world.cut_off(cut_off)
            report = await seen_as(world, platform, cut_off, lambda r: bool(r.unreachable), "unreachable")
            assert report.state is JobState.UNKNOWN
            check_told(world, report.unreachable)
            await seen(world, platform, other, JobState.RUNNING)
            await finish(world, platform, [other])
            third = await running(world, platform, "c")
            await finish(world, platform, [third])
            assert (await platform.observe([cut_off]))[cut_off].unreachable
            await world.reconnect(cut_off)
            report = await seen(world, platform, cut_off, JobState.RUNNING)
            assert not report.unreachable
            assert [await world.count(one.job_name) for one in (cut_off, other, third)] == [1, 1, 1]
            await finish(world, platform, [cut_off])

    async def test_no_room_is_answered_until_there_is_room(self, world: World) -> None:
        """Item 20: without room, no job is accepted."""
        needs(world, Feature.ROOM)
        async with world.make() as platform:
            first, spec = await running(world, platform, "a"), world.job("b")
            await world.start_shortage()
            platform.want(1)
            for _ in range(3):
                answer = await insist(world, lambda: platform.submit(spec))
                assert isinstance(answer, NoRoom)
                check_told(world, answer.why.sentence)
            assert await world.count(spec.name) == 0
            if (room := platform.room()).free is not None:
                assert room.free == 0 and room.why is not None
            await seen(world, platform, first, JobState.RUNNING)
            world.recorder.woken.clear()
            await world.end_shortage()
            handle = await taken(world, platform, spec)  # if the adapter reports room, this waits for the wake-up
            platform.want(0)
            await world.begin(handle)
            assert await world.count(handle.job_name) == 1
            await finish(world, platform, [first, handle])

    async def test_questions_without_an_answer_cost_nothing(self, world: World) -> None:
        """Item 22: unanswered calls cost nothing: the scheduler cancels and repeats them."""
        needs(world, Feature.HANG)
        async with world.make() as platform:
            handle, over = await running(world, platform, "a"), await running(world, platform, "b")
            await world.end(over, 0)
            await seen(world, platform, over, JobState.SUCCEEDED)
            spec = world.job("c")
            await world.start_hanging()
            for ask in _questions(world, platform, handle, over):
                await _give_up(ask)
            assert await _give_up(lambda: platform.submit(spec)) is None, "no answer has come"
            await world.end_hanging()
            await seen(world, platform, handle, JobState.RUNNING)
            other = await run(world, platform, dataclasses.replace(spec, is_repeat=True))
            assert [await world.count(one.job_name) for one in (handle, other)] == [1, 1]
            await finish(world, platform, [handle, other])

    async def test_leaving_works_while_nothing_answers(self, world: World) -> None:
        """Item 22: an adapter can be exited while no call is answered."""
        needs(world, Feature.HANG)
        world.job("a")
        before, platform = leftovers(), world.make()
        await insist(world, platform.__aenter__)
        handle = await running(world, platform, "a")
        await world.start_hanging()
        await _give_up(lambda: platform.observe([handle]))
        async with asyncio.timeout(_EXIT_S):
            await platform.__aexit__(None, None, None)
        assert await new_leftovers(before, 2.0) == frozenset()
        await world.end_hanging()
        async with world.make() as platform:
            await seen(world, platform, handle, JobState.RUNNING)

    async def test_repeated_submission_after_a_lost_answer_is_the_same_job(self, world: World) -> None:
        """Item 23: a submission with a lost answer is repeated as one job."""
        needs(world, Feature.LOST_ANSWERS)
        async with world.make() as platform:
            await running(world, platform, "a")  # it is connected now
            handle = await _repeated(world, platform, dataclasses.replace(world.job("b"), nonce=_NONCE))
            assert await world.count(handle.job_name) == 1
            await finish(world, platform, [handle])

    async def test_foreign_job_of_the_same_name_is_left_alone(self, world: World) -> None:
        """Item 23: a foreign job with the same name is not touched or mistaken for ours, whether or not the platform
        allows a second job of that name."""
        needs(world, Feature.LOST_ANSWERS, Feature.FOREIGN_JOBS)
        spec = dataclasses.replace(world.job("b"), nonce=_NONCE)
        async with world.make() as platform:
            await running(world, platform, "a")
            await world.plant(spec)
            try:
                handle = await _repeated(world, platform, spec)
            except SubmitRejected as error:
                check_told(world, str(error))
                assert await world.count(spec.name) == 0
            else:
                assert await world.count(spec.name) == 1
                await finish(world, platform, [handle])
                await platform.forget([handle])
            assert await world.is_planted(spec)
        await insist(world, lambda: world.make().clean([spec.name]))
        assert await world.is_planted(spec)

    async def test_experiments_share_a_connection_and_nothing_else(self, world: World) -> None:
        """Item 24: experiments share a connection and nothing else."""
        needs(world, Feature.SHARED_CONNECTION)
        recorder = world.recorder.other("neighbour")
        async with world.make_of(recorder) as second:
            async with world.make() as first:
                one = await running(world, first, "a")
                two = await run(world, second, world.job_of(recorder, "a"), recorder)
                assert one.job_name != two.job_name
                assert world.sessions_seen <= world.max_sessions
                await finish(world, first, [one])
            await finish(world, second, [two], recorder)  # continues without the first
        assert [await world.count(handle.job_name) for handle in (one, two)] == [1, 1]
        assert one.job_name not in recorder.told_ends and two.job_name not in world.recorder.told_ends

    async def test_experiments_on_a_connection_share_its_pace(self, world: World) -> None:
        """Item 24: experiments on one connection share one rate limit."""
        needs(world, Feature.SHARED_CONNECTION, Feature.PACE)
        recorder, (calls, per_s) = world.recorder.other("neighbour"), world.pace
        async with world.make() as first, world.make_of(recorder) as second:
            one = await running(world, first, "a")
            two = await run(world, second, world.job_of(recorder, "a"), recorder)
            before = len(world.calls_seen)
            await asyncio.gather(_ask_for(2.5 * per_s, first, one), _ask_for(2.5 * per_s, second, two))
            moments = sorted(world.calls_seen)
            assert len(moments) > before, "calls were made"
        busiest = max(sum(start <= moment < start + per_s for moment in moments) for start in moments)
        assert busiest <= calls + 1, "and one call that took longer"

    async def test_forgetting_and_closing_leave_nothing(self, world: World) -> None:
        """Item 25: an experiment leaves nothing after all jobs were forgotten and it was closed."""
        needs(world, Feature.TRACES)
        async with world.make() as platform:
            ended, stopped = await running(world, platform, "a"), await running(world, platform, "b")
            await world.end(ended, 0)
            await seen(world, platform, ended, JobState.SUCCEEDED)
            assert await world.traces(world.recorder.experiment_id)
            await platform.cancel([stopped], _GRACE_S)
            await seen(world, platform, stopped, JobState.CANCELLED, JobState.FAILED)
            await platform.forget([ended, stopped])
            await platform.close()
            await platform.close()
            await _until_gone(world, world.recorder.experiment_id)

    async def test_cleaning_ends_and_removes_what_is_left(self, world: World) -> None:
        """Item 25: cleaning ends and removes leftovers, with an instance that was not entered, long after."""
        needs(world, Feature.TRACES)
        async with world.make() as platform:
            ended, runs = await running(world, platform, "a"), await running(world, platform, "b")
            await world.end(ended, 0)
            names = [ended.job_name, runs.job_name, (await accepted(world, platform, "c")).job_name]
        await world.restart()
        if Feature.OUTAGE not in world.absent:
            await world.start_outage()
            await unavailable(world, lambda: world.make().clean(names))
            await world.end_outage()
        for _ in range(2):
            await insist(world, lambda: world.make().clean(names))
        await _until_gone(world, world.recorder.experiment_id)

    async def test_cleaning_at_work_ends_only_the_named_jobs(self, world: World) -> None:
        """Item 25: an instance that was entered ends only the given jobs, and keeps what others need."""
        async with world.make() as platform:
            given_up, runs = await running(world, platform, "a"), await running(world, platform, "b")
            await insist(world, lambda: platform.clean([given_up.job_name]))
            await seen(world, platform, given_up, JobState.CANCELLED, JobState.FAILED, JobState.LOST)
            later = await running(world, platform, "c")
            await finish(world, platform, [runs, later])

    async def test_cleaning_leaves_other_experiments_alone(self, world: World) -> None:
        """Item 25: cleaning leaves other experiments alone."""
        needs(world, Feature.TRACES, Feature.SHARED_CONNECTION)
        recorder = world.recorder.other("neighbour")
        async with world.make() as platform:
            names = [(await running(world, platform, "a")).job_name]
        async with world.make_of(recorder) as neighbour:
            theirs = await run(world, neighbour, world.job_of(recorder, "a"), recorder)
            await insist(world, lambda: world.make().clean(names))
            await _until_gone(world, world.recorder.experiment_id)
            assert await world.traces(recorder.experiment_id)
            await finish(world, neighbour, [theirs], recorder)

    async def test_single_replica_reports(self, world: World) -> None:
        """Item 26: only one of two replicas reports."""
        needs(world, Feature.REPLICAS)
        async with world.make_replicated() as platform:
            if Feature.RESULTS in world.absent:
                return await _check_posted_once(world, platform)
            handle = await running(world, platform, "a")
            await world.report_from(handle, 1, result_line(1))
            await world.report_from(handle, 0, result_line(0))
            await world.end(handle, 0)
            await seen(world, platform, handle, JobState.SUCCEEDED)
            await check_results(world, handle, [result_line(0)])


async def _enters(platform: Platform[Any]) -> bool:
    """Whether an adapter can be entered now; False: it raised PlatformUnavailable."""
    try:
        await platform.__aenter__()
    except PlatformUnavailable:
        return False
    return True


def _questions(
    world: World, platform: Platform[Any], handle: JobHandle, over: JobHandle
) -> Sequence[Callable[[], Awaitable[object]]]:
    """Calls of all verbs that change nothing."""
    questions: list[Callable[[], Awaitable[object]]] = [
        lambda: platform.observe([handle, over]),
        lambda: platform.cancel([over], _GRACE_S),
        lambda: platform.forget([over]),
        platform.preflight,
    ]
    if platform.capabilities.reads_files:
        questions.append(lambda: platform.read_file(handle, world.log_name, 0, 100))
    return questions


async def _give_up(ask: Callable[[], Awaitable[object]]) -> object:
    """The result of a call, if it comes soon, as from memory; None: cancelled, or refused as unavailable."""
    with suppress(TimeoutError, PlatformUnavailable):
        async with asyncio.timeout(_GIVEN_UP_S):
            return await ask()
    return None


async def _repeated(world: World, platform: Platform[Any], spec: JobSpec) -> JobHandle:
    """The handle of a running job that was submitted twice, because the first answer was lost."""
    await world.lose_answer()
    with pytest.raises(PlatformUnavailable) as lost:
        await platform.submit(spec)
    assert not lost.value.refused, "it may have been accepted"
    return await run(world, platform, dataclasses.replace(spec, is_repeat=True))


async def _ask_for(seconds: float, platform: Platform[Any], handle: JobHandle) -> None:
    """Observes a job for a number of seconds, repeatedly."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with suppress(PlatformUnavailable):
                    await platform.observe([handle])
                await asyncio.sleep(0.001)  # an answer from memory does not yield


async def _until_gone(world: World, experiment_id: str) -> None:
    try:
        async with asyncio.timeout(world.patience_s):
            while left := await world.traces(experiment_id):  # noqa: ASYNC110 (removed when the platform likes)
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        pytest.fail(f"still there after {world.patience_s} s: {sorted(left)}")


async def _check_posted_once(world: World, platform: Platform[Any]) -> None:
    """Asserts that only one replica's results are accepted, if replicas post."""
    with fake_listener() as listener:
        handle = await taken(world, platform, world.pushing_job("a", _REPORTING, listener.variables()))
        await seen(world, platform, handle, JobState.SUCCEEDED)
    assert listener.values() == [1, 2]
