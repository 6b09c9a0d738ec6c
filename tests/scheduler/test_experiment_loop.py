"""The whole loop with a fake platform and a fake tuner on a real database."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.clock import now_ms
from nni_manager.domain.errors import BadCredentials, PlatformUnavailable, StoreCorrupt, SubmitRejected
from nni_manager.domain.experiment import ExperimentSpec, ExperimentStatus, Hold, HoldCode, LiveSpec, PlatformSpec
from nni_manager.domain.job import JobState
from nni_manager.domain.trial import StopRequest
from nni_manager.platform_kit.connections import Connections
from nni_manager.platform_kit.contract import Host
from nni_manager.platform_kit.section_model import PlatformSection
from nni_manager.scheduler.experiments.services import Services
from nni_manager.scheduler.tuning import watched_tuner
from nni_manager.scheduler.tuning.feed import TunerFeed
from nni_manager.scheduler.tuning.host import HostPlace
from nni_manager.scheduler.turns import experiment_loop, forgetting, refusals, training_service
from nni_manager.scheduler.turns import inbox as inboxes
from nni_manager.scheduler.turns.actions import Actions, JobFactory
from nni_manager.scheduler.turns.code_watch import CodeWatch
from nni_manager.scheduler.turns.deliveries import JobMessages
from nni_manager.scheduler.turns.experiment_loop import ExperimentLoop
from nni_manager.scheduler.turns.inbox import Inbox
from nni_manager.scheduler.turns.output_watch import OutputWatch
from nni_manager.scheduler.turns.training_service import TrainingService
from nni_manager.scheduler.turns.trial_listener import Heartbeats
from nni_manager.scheduler.turns.turn import Result, Seen, tally
from nni_manager.store.connection import Connection, connect
from nni_manager.store.database import Database
from nni_manager.store.experiment import experiments, jobs, services, trials
from tests.scheduler.fake_listener import FakeListener
from tests.scheduler.fake_platform import KILLED, RUNNING, SUCCEEDED, FakePlatform
from tests.scheduler.fake_tuner import FakeHost, Script
from tests.scheduler.pictures import spec
from tests.store.life import one
from trial_runner import protocol

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]


def resumed(connection: sqlite3.Connection) -> None:
    """What `resume` clears."""
    experiments.set_hold(connection, None)
    services.clear_holds(connection, 0)


class AtWork:
    """One experiment at work."""

    def __init__(
        self, path: Path, config: ExperimentSpec, script: Script, platform: type[FakePlatform] = FakePlatform
    ) -> None:
        self.path = path
        self.script = script
        self.statuses: list[str] = []
        #: Milliseconds by which the clock was set.
        self.ahead_ms = 0
        self.database = Database(path)
        row = _load(path)
        place = HostPlace(interpreter="python", environment={}, folder=path.parent, log_folder=path.parent)
        inbox, live = Inbox(), LiveSpec(config)
        heartbeats = Heartbeats(inbox.wake)
        feed = TunerFeed(self.database, live, place, reported=row.ended_trials, patience_s=60, wake=inbox.wake)
        self.listener = FakeListener()
        self.messages = JobMessages(
            experiment_id="exp1",
            spec=live,
            database=self.database,
            inbox=inbox,
            judge=feed.judge,
            changed=lambda: None,
            clock=self.now_ms,
        )
        self.services = {p.service: self._service(p, inbox, platform) for p in config.platforms}
        factory = JobFactory(
            experiment_id="exp1",
            spec=live,
            folder_of_trials=path.parent / "trials",
            caller_environment={"SECRET": "x"},
            trial_listener=self.listener,
            nonce="n0",
        )
        actions = Actions(
            services=self.services,
            inbox=inbox,
            jobs=factory,
            spec=live,
            heartbeats=heartbeats,
            want=feed.want,
            clock=self.now_ms,
            code=CodeWatch(
                services=self.services,
                database=self.database,
                spec=live,
                leave_out="",
                clock=self.now_ms,
                changed=lambda: None,
            ),
            output=OutputWatch(
                services=self.services,
                database=self.database,
                spec=live,
                trials=path.parent / "trials",
                changed=lambda: None,
            ),
        )
        build = SimpleNamespace(folder=None, database=self.database, spec=live)
        services = Services(cast(Any, build), inbox, self.messages, lambda job_name: None)
        services.all = self.services
        self.loop = ExperimentLoop(
            experiment_id="exp1",
            spec=live,
            database=self.database,
            inbox=inbox,
            feed=feed,
            services=services,
            actions=actions,
            heartbeats=heartbeats,
            trial_listener=self.listener,
            clock=self.now_ms,
            safety_poll_s=30,
            changed=lambda: None,
            on_status=self._note,
        )
        self.service = next(iter(self.services.values()))
        self.platform = cast(FakePlatform, self.service.platform)

    def _service(self, platform: PlatformSpec, inbox: Inbox, adapter: type[FakePlatform]) -> TrainingService:
        def make(wake: Callable[[str], None]) -> FakePlatform:
            return adapter(PlatformSection(platform=platform.name), self._host(platform.service, wake))

        return TrainingService(
            spec=platform, make=make, inbox=inbox, database=self.database, clock=self.now_ms, changed=lambda: None
        )

    def _host(self, service: str, wake: Callable[[str], None]) -> Host:
        return Host(
            experiment_id="exp1",
            service=service,
            wake=wake,
            deliver=self.messages.deliver,
            followed=lambda names: self.database.read(lambda c: jobs.followed(c, service, names)),
            stored=lambda job_name: self.database.read(lambda c: jobs.offsets(c, job_name)),
            connections=Connections(),
            folder=self.path.parent,
            code=cast(Any, None),
            register=self.messages.register,
            exited=self.messages.exited,
        )

    def now_ms(self) -> int:
        return now_ms() + self.ahead_ms

    def set_clock(self, by_s: int) -> None:
        self.ahead_ms += by_s * 1000
        self.loop.wake()

    async def _note(self, result: Result) -> None:
        self.statuses.append(result.status)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 (any condition; no event tells of each)
                await asyncio.sleep(0.001)

    def ask(self, query: str) -> Any:
        connection = connect(self.path)
        try:
            return one(connection, query)
        finally:
            connection.close()

    async def runs(self, count: int) -> list[str]:
        """Names of the running jobs, once there are this many and their trials are RUNNING."""
        query = "SELECT count(*) FROM trials WHERE status = 'RUNNING'"
        await self.until(lambda: len(self.running) == count and self.ask(query) == count)
        return self.running

    @property
    def running(self) -> list[str]:
        return sorted(name for name, report in self.platform.jobs.items() if report == RUNNING)

    @property
    def statuses_of_trials(self) -> dict[str, int]:
        connection = connect(self.path)
        try:
            return dict(connection.execute("SELECT status, count(*) FROM trials GROUP BY status").fetchall())
        finally:
            connection.close()

    async def command(self, function: Callable[[Connection], object]) -> None:
        await self.database.write(function)
        self.loop.wake()

    async def stop(self) -> None:
        await self.command(lambda c: experiments.set_status(c, ExperimentStatus.STOPPING, now_ms()))


@asynccontextmanager
async def at_work(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    config: ExperimentSpec,
    *,
    script: Script | None = None,
    prepare: Callable[[FakePlatform], None] = lambda _: None,
    platform: type[FakePlatform] = FakePlatform,
    closed_listener: Sequence[Exception] = (),
) -> AsyncIterator[AtWork]:
    """Runs a loop as the supervisor does; on leaving, jobs run on."""
    script = script or Script()
    monkeypatch.setattr(watched_tuner, "TunerHosts", type("Host", (FakeHost,), {"script": script}))
    work = AtWork(path, config, script, platform)
    work.listener.raises += closed_listener
    prepare(work.platform)
    task = asyncio.create_task(work.loop.run())
    try:
        yield work
        if work.loop.closed.is_set():
            await asyncio.wait_for(task, 5)
        assert work.loop.closed.is_set() or not task.done(), "it ended before its time"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await work.database.close()


def _load(path: Path) -> experiments.StoredExperiment:
    connection = connect(path)
    try:
        return experiments.load(connection)
    finally:
        connection.close()


def _holds(path: Path) -> list[Hold]:
    """Of the training services."""
    connection = connect(path)
    try:
        return [row.hold for row in services.load(connection).values() if row.hold is not None]
    finally:
        connection.close()


Patch = pytest.MonkeyPatch
REFUSED = Hold(code=HoldCode.BAD_CREDENTIALS, sentence="refused")


async def test_from_the_first_proposal_to_done(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(max_trial_number=3)) as work:
        for count in (2, 2, 1):
            names = await work.runs(count)
            work.platform.change(names[0], SUCCEEDED)
            await work.until(lambda name=names[0]: name in work.platform.forgotten)
        await work.until(lambda: "DONE" in work.statuses)
        assert work.statuses == ["RUNNING", "NO_MORE_TRIAL", "DONE"]
        assert work.statuses_of_trials == {"SUCCEEDED": 3}
        await work.until(lambda: work.script.closed)
        told = [item["end_order"] for call in work.script.of("learn") for item in call["results"]]
        assert told == [1, 2, 3]
        records = [json.loads(job.parameter_record) for job in work.platform.specs]
        assert [record["parameter_id"] for record in records] == [0, 1, 2]
        assert [job.sequence_id for job in work.platform.specs] == [0, 1, 2]


async def test_news_that_no_decision_waits_for_share_a_turn(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec()) as work:
        names = await work.runs(2)
        await asyncio.sleep(3 * inboxes.GATHER_S)  # what began with them is over
        before, _ = tally.turns.read()
        for name in names:
            work.loop.inbox.report({name: dataclasses.replace(RUNNING, place="node-1")})
            await asyncio.sleep(0)
        await work.until(lambda: tally.turns.read()[0] > before)
        await asyncio.sleep(3 * inboxes.GATHER_S)
        assert tally.turns.read()[0] == before + 1


async def test_turn_takes_waiting_events_along(monkeypatch: Patch, path: Path) -> None:
    """Acceptance and start of a job start no turn at once; its end, or a stop, does."""
    for seconds in ("GATHER_S", "DETAIL_S"):
        monkeypatch.setattr(inboxes, seconds, 3600)
    async with at_work(monkeypatch, path, spec(max_trial_number=3, trial_concurrency=1)) as work:
        for _ in range(2):
            await work.until(lambda: work.running)
            (name,) = work.running
            assert work.ask(f"SELECT state FROM attempts WHERE job_name = '{name}'") == "INTENT"
            work.platform.change(name, SUCCEEDED)
            await work.until(lambda name=name: name not in work.platform.jobs)
        await work.until(lambda: work.running)
        await work.stop()
        async with asyncio.timeout(10):
            await work.loop.closed.wait()
        assert work.statuses_of_trials == {"SUCCEEDED": 2, "USER_CANCELED": 1}
        # the platform's clock is far behind: nothing of an attempt was before it was decided on
        started = (
            "SELECT count(*) FROM trials t JOIN attempts a ON a.trial_id = t.id WHERE t.started_ms = a.intended_ms"
        )
        assert work.ask(f"{started} AND t.status = 'SUCCEEDED'") == 2
        await work.until(lambda: work.platform.jobs == {})


async def test_an_exhausted_tuner_is_asked_again_after_each_result(monkeypatch: Patch, path: Path) -> None:
    script = Script()
    script.left = 1
    async with at_work(monkeypatch, path, spec(), script=script) as work:
        (name,) = await work.runs(1)
        await work.until(lambda: work.statuses[-1] == "TUNER_NO_MORE_TRIAL")
        script.left = 1
        work.platform.change(name, SUCCEEDED)
        await work.until(lambda: len(work.platform.specs) == 2)
        work.platform.change((await work.runs(1))[0], SUCCEEDED)
        await work.until(lambda: work.statuses[-1] == "DONE")
        assert work.statuses_of_trials == {"SUCCEEDED": 2}


async def test_stopping_ends_all_jobs_and_the_loop(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec()) as work:
        names = await work.runs(2)
        await work.stop()
        async with asyncio.timeout(10):
            await work.loop.closed.wait()
        await work.until(lambda: work.platform.entered == 0)
        assert (sorted(work.platform.cancelled), work.platform.jobs) == (names, {})
        assert work.statuses_of_trials == {"USER_CANCELED": 2}
        assert work.ask("SELECT count(*) FROM attempts WHERE forgotten = 0") == 0


async def test_next_process_continues(monkeypatch: Patch, path: Path) -> None:
    """The daemon dies; its jobs run on, one ends meanwhile."""
    async with at_work(monkeypatch, path, spec(max_trial_number=2)) as first:
        one_, two = await first.runs(2)
        jobs = first.platform.jobs

    def adopt(platform: FakePlatform) -> None:
        platform.jobs = {**jobs, one_: SUCCEEDED}

    async with at_work(monkeypatch, path, spec(max_trial_number=2), prepare=adopt) as second:
        await second.until(lambda: second.statuses_of_trials == {"SUCCEEDED": 1, "RUNNING": 1})
        second.platform.change(two, SUCCEEDED)
        await second.until(lambda: "DONE" in second.statuses)
        assert second.platform.specs == []
        assert second.statuses_of_trials == {"SUCCEEDED": 2}


async def test_lost_job_is_resubmitted(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        (name,) = await work.runs(1)
        del work.platform.jobs[name]
        work.platform.host.wake(name)
        assert await work.runs(1) == [f"{name}-2"]
        work.platform.change(f"{name}-2", SUCCEEDED)
        await work.until(lambda: "DONE" in work.statuses)
        assert work.statuses == ["RUNNING", "NO_MORE_TRIAL", "DONE"], "it was not done in between"
        assert work.ask("SELECT state, given_up FROM attempts WHERE number = 1") == ("LOST", "PLATFORM")


async def test_a_job_that_is_refused_for_good_fails_its_trial(monkeypatch: Patch, path: Path) -> None:
    def refuse(platform: FakePlatform) -> None:
        platform.raises["submit"] = [SubmitRejected("cannot find queue `gpu`")]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        await work.until(lambda: "DONE" in work.statuses)
        assert work.ask("SELECT status, reason, message FROM trials") == (
            "FAILED",
            "SUBMIT_REJECTED",
            "cannot find queue `gpu`",
        )


async def test_repeated_submission_is_not_withdrawn(monkeypatch: Patch, path: Path) -> None:
    """A repeat that was certainly not taken says nothing of the call before: its job may run, and be ended there."""

    def refuse(platform: FakePlatform) -> None:
        platform.raises["submit"] = [PlatformUnavailable("no answer"), PlatformUnavailable("no route", refused=True)]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        await work.runs(1)
        assert work.platform.specs[0].is_repeat


@pytest.mark.parametrize("refused", [True, False])
async def test_a_platform_without_room_is_tried_again(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(platform: FakePlatform) -> None:
        platform.raises["submit"] = [PlatformUnavailable("no room", refused=refused)]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        await work.until(lambda: work.loop.derived_hold)
        hold = work.loop.derived_hold
        assert hold is not None and (hold.code, hold.sentence) == (HoldCode.PLATFORM_UNAVAILABLE, "no room")
        await work.until(lambda: work.ask("SELECT wait_code FROM trials") == "PLATFORM_UNAVAILABLE")
        await work.runs(1)
        assert work.loop.derived_hold is None
        assert len(work.platform.specs) == 1
        await work.until(lambda: f"Job {work.running[0]} submitted" in caplog.messages)
        assert caplog.text.count("submitted") == 1, "only what the platform took"
        assert work.ask("SELECT count(*), max(number) FROM attempts") == (1, 1)


@pytest.mark.parametrize("verb", ["enter", "submit", "observe"])
async def test_short_credential_refusal_causes_no_hold(monkeypatch: Patch, path: Path, verb: str) -> None:
    """As by a server that has just been started."""

    def refuse(platform: FakePlatform) -> None:
        platform.raises[verb] = [BadCredentials("forbidden")] * 2

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        (name,) = await work.runs(1)
        await work.until(lambda: not work.platform.raises[verb])
        work.platform.change(name, SUCCEEDED)
        await work.until(lambda: "DONE" in work.statuses)
        assert _holds(path) == [] and work.ask("SELECT count(*), max(number) FROM attempts") == (1, 1)


@pytest.mark.parametrize("verb", ["enter", "submit", "observe"])
async def test_a_hold_for_refused_credentials_ends_by_itself(monkeypatch: Patch, path: Path, verb: str) -> None:
    monkeypatch.setattr(refusals, "HOLD_AFTER_S", 0.0)
    monkeypatch.setattr(refusals, "TRY_AGAIN_S", 0.3)
    monkeypatch.setattr(training_service, "TRY_AGAIN_S", 0.3)

    def refuse(platform: FakePlatform) -> None:
        platform.raises[verb] = [BadCredentials("the token has expired")] * 3

    async with at_work(monkeypatch, path, spec(max_trial_number=2), prepare=refuse) as work:
        await work.until(lambda: [hold.code for hold in _holds(path)] == ["BAD_CREDENTIALS"])
        await work.until(lambda: not work.platform.raises[verb])
        await work.runs(2)
        await work.until(lambda: _holds(path) == [] and _load(path).hold is None)
        assert work.ask("SELECT count(*), max(number) FROM attempts") == (2, 1)


async def test_occasional_refusal_causes_no_hold(monkeypatch: Patch, path: Path) -> None:
    """A minute of refusals, and nothing else."""
    monkeypatch.setattr(refusals, "HOLD_AFTER_S", 0.4)
    answers = [BadCredentials("forbidden"), PlatformUnavailable("busy", refused=True)] * 2

    def refuse(platform: FakePlatform) -> None:
        platform.raises["submit"] = [*answers]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        await work.runs(1)
        assert _holds(path) == []


async def test_hold_of_earlier_process_ends_with_valid_credentials(monkeypatch: Patch, path: Path) -> None:
    connection = connect(path)
    services.set_hold(connection, spec().platforms[0].service, REFUSED)
    experiments.set_hold(connection, REFUSED)
    connection.commit()
    connection.close()
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        await work.runs(1)
        assert _holds(path) == [] and _load(path).hold is None


async def test_refused_credentials_hold_until_resume(monkeypatch: Patch, path: Path) -> None:
    monkeypatch.setattr(refusals, "HOLD_AFTER_S", 0.0)

    def refuse(platform: FakePlatform) -> None:
        platform.raises["submit"] = [BadCredentials("the token has expired; put a new one into the config")]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        await work.until(lambda: _load(path).hold)
        hold = _load(path).hold
        assert hold is not None and hold.code is HoldCode.BAD_CREDENTIALS
        assert hold.sentence == "the token has expired; put a new one into the config"
        await work.command(resumed)
        await work.runs(1)


@pytest.mark.parametrize("verb", ["submit", "observe"])
async def test_refused_credentials_do_not_block_a_stop(monkeypatch: Patch, path: Path, verb: str) -> None:
    monkeypatch.setattr(refusals, "HOLD_AFTER_S", 0.0)

    def refuse(platform: FakePlatform) -> None:
        platform.raises[verb] = [BadCredentials("expired")] * 1000  # a call that is accepted meanwhile ends the hold

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuse) as work:
        await work.until(lambda: _load(path).hold)
        await work.stop()
        async with asyncio.timeout(10):
            await work.loop.closed.wait()


async def test_a_bug_in_an_adapter_is_a_hold_with_its_stack(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def break_(platform: FakePlatform) -> None:
        platform.raises["submit"] = [KeyError("phase")]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=break_) as work:
        await work.until(lambda: _load(path).hold)
        hold = _load(path).hold
        assert hold is not None and hold.code is HoldCode.INTERNAL
        assert "KeyError('phase')" in hold.sentence and "Traceback" in hold.details
        assert any(record.exc_info for record in caplog.records)
        await work.command(resumed)
        await work.runs(1)


async def test_a_stop_that_does_not_arrive_is_sent_again(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        (name,) = await work.runs(1)
        work.platform.raises["cancel"] = [PlatformUnavailable("away")]
        (id_,) = (name[-5:],)
        await work.command(lambda c: trials.request_stop(c, id_, StopRequest.USER))
        await work.until(lambda: "DONE" in work.statuses)
        assert work.platform.cancelled == [name, name]
        assert work.statuses_of_trials == {"USER_CANCELED": 1}


async def test_stops_are_sent_again_after_a_reconnection(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        (name,) = await work.runs(1)
        work.platform.jobs[name] = KILLED  # a stop that got lost on the way: the platform ignores it
        await work.command(lambda c: trials.request_stop(c, name[-5:], StopRequest.USER))
        await work.until(lambda: work.platform.cancelled == [name])
        work.platform.jobs[name] = RUNNING
        work.platform.host.wake("")
        await work.until(lambda: work.platform.cancelled == [name, name])
        await work.until(lambda: "DONE" in work.statuses)


async def test_results_are_stored_before_they_are_acknowledged(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        (name,) = await work.runs(1)
        lines = ['{"type": "intermediate", "value": 1}', "broken", '{"type": "final", "value": NaN}']
        receipt = await work.platform.host.deliver(name, "outbox/main.jsonl", 0, 60, lines)
        assert not receipt.resend
        assert work.ask("SELECT count(*) FROM metrics") == 2
        assert work.ask("SELECT final_data FROM trials") == "NaN"
        assert any("line 2 is not a metric" in text and name in text for text in caplog.messages)
        gap = await work.platform.host.deliver(name, "outbox/main.jsonl", 90, 95, ["x"])
        assert gap.resend
        again = await work.platform.host.deliver(name, "outbox/main.jsonl", 0, 60, lines)
        assert not again.resend
        record = json.dumps({"type": "FINAL", "value": "0.5"})
        await work.platform.host.deliver(name, ".nni/metrics", 0, 20, [record])
        assert work.ask("SELECT count(*) FROM metrics") == 3
        assert await work.platform.host.followed([]) == {name: {"outbox/main.jsonl": 60, ".nni/metrics": 20}}


async def test_end_delivered_with_last_lines_is_stored_with_them(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        (name,) = await work.runs(1)
        lines = ['{"type": "final", "value": 1}']
        gap = await work.platform.host.deliver(name, "outbox/main.jsonl", 30, 60, lines, SUCCEEDED)
        assert gap.resend
        assert work.statuses_of_trials == {"RUNNING": 1}
        receipt = await work.platform.host.deliver(name, "outbox/main.jsonl", 0, 30, lines, SUCCEEDED)
        assert not receipt.resend
        assert work.statuses_of_trials == {"SUCCEEDED": 1}
        assert work.ask("SELECT final_data FROM trials") == "1"
        await work.until(lambda: "DONE" in work.statuses)


async def test_unstored_last_lines_are_not_acknowledged(monkeypatch: Patch, path: Path) -> None:
    work = AtWork(path, spec(), Script(), FakePlatform)
    delivering = asyncio.create_task(work.messages.deliver("job", "outbox/main.jsonl", 0, 9, ["{}"], SUCCEEDED))
    await asyncio.sleep(0)
    error = StoreCorrupt("torn")
    monkeypatch.setattr(work.database, "write", AsyncMock(side_effect=error))
    for _ in range(2):  # the corruption is what the loop ends with, also when it is asked once more
        with pytest.raises(StoreCorrupt):
            await work.loop.turn()
    with pytest.raises(StoreCorrupt):
        await delivering
    await work.database.close()


async def test_forget_calls_are_batched_except_on_close(monkeypatch: Patch, path: Path) -> None:
    monkeypatch.setattr(forgetting, "GATHER_S", 600.0)
    async with at_work(monkeypatch, path, spec(max_trial_number=2)) as work:
        calls: list[list[str]] = []
        forget = work.platform.forget

        async def noting(handles: Sequence[Any]) -> None:
            calls.append(sorted(handle.job_name for handle in handles))
            await forget(handles)

        monkeypatch.setattr(work.platform, "forget", noting)
        names = await work.runs(2)
        for ended, name in enumerate(names, 1):
            work.platform.change(name, SUCCEEDED)
            await work.until(lambda ended=ended: work.statuses_of_trials.get("SUCCEEDED") == ended)
        assert calls == []
        await work.stop()
        await work.until(lambda: work.platform.entered == 0)
        assert calls == [names]
        assert work.ask("SELECT count(*) FROM attempts WHERE forgotten = 0") == 0


async def test_forgetting_works_again_after_the_loop_was_restarted(monkeypatch: Patch, path: Path) -> None:
    work = AtWork(path, spec(max_trial_number=2, trial_concurrency=1), Script())
    monkeypatch.setattr(watched_tuner, "TunerHosts", type("Host", (FakeHost,), {"script": work.script}))
    never = asyncio.Event()
    forgets = asyncio.Event()
    forget = work.platform.forget

    async def hang(handles: Any) -> None:
        forgets.set()
        await never.wait()

    monkeypatch.setattr(work.platform, "forget", hang)
    task = asyncio.create_task(work.loop.run())
    (name,) = await work.runs(1)
    work.platform.change(name, SUCCEEDED)
    async with asyncio.timeout(5):
        await forgets.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    monkeypatch.setattr(work.platform, "forget", forget)
    task = asyncio.create_task(work.loop.run())
    await work.until(lambda: name in work.platform.forgotten)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await work.database.close()


@pytest.mark.parametrize("lost", ["a start", "a judgement"])
async def test_events_of_failed_turn_reach_next_loop(monkeypatch: Patch, path: Path, lost: str) -> None:
    """The platform says of the job what it said before, and the assessor nothing more."""
    work = AtWork(path, spec(max_trial_number=1, trial_concurrency=1), Script())
    monkeypatch.setattr(watched_tuner, "TunerHosts", type("Host", (FakeHost,), {"script": work.script}))
    take_turn = experiment_loop.take_turn
    fails = [True]

    def fails_once(connection: Connection, now: ExperimentSpec, seen: Seen, *rest: Any, **more: Any) -> Result:
        if fails and (seen.judged_bad or (lost == "a start" and RUNNING in seen.reports.values())):
            fails.clear()
            raise LookupError("a fault in the plan")
        return take_turn(connection, now, seen, *rest, **more)

    monkeypatch.setattr(experiment_loop, "take_turn", fails_once)
    work.platform.first_report = Observation(state=JobState.PENDING)
    task = asyncio.create_task(work.loop.run())
    await work.until(lambda: work.ask("SELECT count(*) FROM attempts WHERE state = 'PENDING'") == 1)
    (name,) = work.platform.jobs
    work.platform.change(name, RUNNING)
    if lost == "a judgement":
        await work.runs(1)
        work.loop.feed.judged_bad.append(work.ask("SELECT id FROM trials"))
        work.loop.wake()
    with pytest.raises(ExceptionGroup):
        await task
    task = asyncio.create_task(work.loop.run())
    wanted = {"RUNNING": 1} if lost == "a start" else {"EARLY_STOPPED": 1}
    await work.until(lambda: work.statuses_of_trials == wanted)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await work.database.close()


@pytest.mark.parametrize("step_h", [5, -5])
async def test_a_clock_that_is_set_ends_nothing(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture, step_h: int
) -> None:
    hour = spec(max_trial_number=2, max_trial_duration_s=3600, max_experiment_duration_s=3600)
    with closing(connect(path)) as connection:
        experiments.count_to_last_event(connection, now_ms())
    async with at_work(monkeypatch, path, hour, prepare=_starts_now) as work:
        await work.until(lambda: work.statuses_of_trials == {"RUNNING": 2})
        work.set_clock(step_h * 3600)
        started_ms = "SELECT max(started_ms) FROM trials"
        await work.until(lambda: abs(work.now_ms() - work.ask(started_ms)) < 60_000)
        work.set_clock(3500)  # with what passed before it would be more than an hour
        await work.until(lambda: abs(work.now_ms() - work.ask(started_ms)) < 60_000)
        work.platform.change(min(work.platform.jobs), SUCCEEDED)
        await work.until(lambda: work.statuses_of_trials == {"RUNNING": 1, "SUCCEEDED": 1})
        assert work.statuses == ["RUNNING", "NO_MORE_TRIAL"]
        assert work.platform.cancelled == []
        assert caplog.messages == [
            f"the clock of this machine was set by {step} s; time limits ignore that"
            for step in (f"{step_h * 3600:+}", "+3500")
        ]


async def test_platform_is_retried_in_time_after_clock_set_back(monkeypatch: Patch, path: Path) -> None:
    def refuses(platform: FakePlatform) -> None:
        platform.raises["submit"] = [PlatformUnavailable("away", refused=True)]

    async with at_work(monkeypatch, path, spec(max_trial_number=1), prepare=refuses) as work:
        await work.until(lambda: work.service.state.retry_at_ms)
        work.set_clock(-3600)
        await work.runs(1)


def _starts_now(platform: FakePlatform) -> None:
    platform.first_report = dataclasses.replace(RUNNING, started_ms=now_ms())


async def test_platform_that_never_forgets_does_not_block_a_stop(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        await work.runs(1)
        never = asyncio.Event()
        monkeypatch.setattr(work.platform, "forget", lambda handles: never.wait())
        await work.stop()
        await work.until(lambda: work.platform.entered == 0)


# ------------------------------------------------------------------------------------------------ jobs with runners


class RunnerPlatform(FakePlatform):
    capabilities = dataclasses.replace(FakePlatform.capabilities, has_runner=True)


async def test_the_listener_is_open_while_the_experiment_is(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec(manager_ip="10.1.2.3"), platform=RunnerPlatform) as work:
        names = await work.runs(2)
        assert work.listener.users == {"exp1"}
        environment = work.platform.specs[0].runner_environment
        trial_id = names[0].rpartition("_")[2]
        by_name = {job.name: job.runner_environment for job in work.platform.specs}
        assert by_name[names[0]][protocol.ENV_MANAGER_URL] == f"http://10.1.2.3:9999/trial/v1/exp1/{trial_id}/1"
        assert by_name[names[0]][protocol.ENV_TOKEN] == work.listener.tokens.token(names[0])
        assert set(environment) == {protocol.ENV_MANAGER_URL, protocol.ENV_TOKEN}  # the platform knows the rest
        assert environment[protocol.ENV_TOKEN] not in repr(work.platform.specs[0])
        await work.stop()
        await work.until(lambda: work.loop.closed.is_set() and not work.listener.users)


async def test_jobs_without_runners_need_no_listener(monkeypatch: Patch, path: Path) -> None:
    async with at_work(monkeypatch, path, spec()) as work:
        await work.runs(2)
        assert work.listener.opened == [] and dict(work.platform.specs[0].runner_environment) == {}


async def test_a_listener_that_cannot_be_opened_is_tried_again(monkeypatch: Patch, path: Path) -> None:
    """Nothing is submitted meanwhile, and the status says why."""
    monkeypatch.setattr(training_service, "_RETRY_WAITS_MS", (20,))
    busy = PlatformUnavailable("the trial listener cannot be opened: port 8081 is in use", refused=True)
    async with at_work(monkeypatch, path, spec(), platform=RunnerPlatform, closed_listener=[busy] * 8) as work:
        await work.until(lambda: work.loop.derived_hold)
        assert work.loop.derived_hold is not None and work.loop.derived_hold.sentence == str(busy)
        await work.until(lambda: work.ask("SELECT count(*) FROM trials WHERE wait_code = 'PLATFORM_UNAVAILABLE'") == 2)
        assert work.platform.specs == []
        await work.runs(2)
        assert work.loop.derived_hold is None


async def test_behind_a_closed_listener_an_experiment_can_be_stopped(monkeypatch: Patch, path: Path) -> None:
    busy = PlatformUnavailable("the trial listener cannot be opened: port 8081 is in use", refused=True)
    async with at_work(monkeypatch, path, spec(), platform=RunnerPlatform, closed_listener=[busy] * 999) as work:
        await work.until(lambda: work.ask("SELECT count(*) FROM trials WHERE status = 'WAITING'") == 2)
        await work.stop()
        await work.until(lambda: work.loop.closed.is_set())


async def test_late_platform_report_is_compared_with_the_runner_exit(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work = AtWork(path, spec(max_trial_number=2, trial_concurrency=1), Script())
    monkeypatch.setattr(watched_tuner, "TunerHosts", type("Host", (FakeHost,), {"script": work.script}))
    task = asyncio.create_task(work.loop.run())
    (name,) = await work.runs(1)
    await work.messages.exited(name, json.dumps({"exitCode": 0}))
    await work.until(lambda: work.ask("SELECT count(*) FROM trials WHERE status = 'SUCCEEDED'") == 1)
    assert work.platform.forgotten == []
    task.cancel()  # the next connection asks for the platform's report, too
    await asyncio.gather(task, return_exceptions=True)
    work.platform.jobs[name] = Observation(state=JobState.FAILED, exit_code=1)
    task = asyncio.create_task(work.loop.run())
    await work.until(lambda: name in work.platform.forgotten)
    assert f"Job {name}: the platform reports FAILED (exit code 1), the runner reports exit code 0" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await work.database.close()


async def test_broken_lines_of_an_outbox_log_one_warning(
    monkeypatch: Patch, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """400,000 empty lines were 240 MB of log."""
    caplog.set_level(logging.WARNING)
    async with at_work(monkeypatch, path, spec(max_trial_number=1)) as work:
        (name,) = await work.runs(1)
        for start in range(0, 40_000, 10_000):
            await work.platform.host.deliver(name, "outbox/main.jsonl", start, start + 10_000, [""] * 10_000)
        (warning,) = [text for text in caplog.messages if "is not a metric" in text]
        assert "line 1 is not a metric" in warning and "and all later ones like it" in warning
        nonsense = ["[" + "1" * number for number in range(1, 1000)]
        size = sum(len(line) + 1 for line in nonsense)
        await work.platform.host.deliver(name, "outbox/main.jsonl", 40_000, 40_000 + size, nonsense)
        assert len([text for text in caplog.messages if "is not a metric" in text]) == 10


async def test_failing_adapter_exit_does_not_delay_daemons_end(monkeypatch: Patch, path: Path) -> None:
    class Sticky(FakePlatform):
        async def __aexit__(self, *_: object) -> None:
            raise TimeoutError

    async with asyncio.timeout(20):
        async with at_work(monkeypatch, path, spec(), platform=Sticky) as work:
            await work.runs(2)
