"""Ledgers that are fed by a keeper, and jobs that leave it: orders of events that are rare in life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.domain.job import JobState
from nni_manager.machines.keeper import job_events, machines
from nni_manager.machines.keeper.client import Keeper
from nni_manager.machines.keeper.jobs import KeeperJobs, owner_of
from nni_manager.machines.keeper.machines import GPU_AGE_S, KeeperConnection
from nni_manager.machines.ledger import Demand, MachineLedger, Reservation
from nni_manager.machines.waiting_queue import KeeperMachine, Places
from nni_manager.platform_kit.testing import Recorder, unreachable_keeper
from trial_runner import protocol

pytestmark = pytest.mark.unit

ONE = Demand(count=1)


def running(*places: int, owner: str = "other:exp") -> dict[str, Any]:
    reservation = Reservation(machine="m", places=places).as_json()
    return {"state": protocol.RUNNING, "owner": owner, "reservation": reservation}


@dataclass
class TalkativeKeeper(Keeper):
    """Answers from `jobs`; `meanwhile` is called between an answer and its arrival."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: Verb → what is answered instead.
    answers: dict[str, Any] = field(default_factory=dict)
    meanwhile: Callable[[], object] = lambda: None
    is_there: bool = True

    def __post_init__(self) -> None:
        Keeper.__init__(self, unreachable_keeper()._connect)

    @property
    def is_connected(self) -> bool:
        return self.is_there

    async def request(self, verb: str, **arguments: Any) -> Any:
        self.asked.append((verb, arguments))
        if not self.is_there:
            raise PlatformUnavailable("it is away")
        answer = {"list": {"jobs": dict(self.jobs)}, "follow": {"jobs": {}, "unknown": []}}.get(verb, {})
        answer = self.answers.get(verb, answer)
        self.meanwhile()
        await asyncio.sleep(0)
        return answer


@pytest.fixture
def keeper() -> TalkativeKeeper:
    return TalkativeKeeper()


@pytest.fixture
def places() -> Places:
    return Places()


async def serving(keeper: TalkativeKeeper, places: Places, count: int = 1) -> KeeperConnection:
    connection = KeeperConnection(keeper, places)
    await connection.open()
    await connection.serve([KeeperMachine(name="m", places=count)])
    return connection


def found(places: Places) -> MachineLedger:
    machine = places.find("m")
    assert machine is not None
    return machine


async def test_jobs_of_a_daemon_before_this_one_have_their_places(keeper: TalkativeKeeper, places: Places) -> None:
    keeper.jobs = {"a": running(0), "ended": {**running(1), "state": protocol.ENDED}}
    await serving(keeper, places, count=2)
    assert found(places).users() == {0: [("a", 1, 0)]}
    assert keeper.asked[-1] == ("follow", {"jobs": {"a": {}}}), "no other request asks for its end"


async def test_job_that_ends_during_list_request_has_no_place(keeper: TalkativeKeeper, places: Places) -> None:
    keeper.jobs = {"a": running(0)}
    connection = KeeperConnection(keeper, places)
    keeper.meanwhile = lambda: connection.on_end("a")
    await connection.serve([KeeperMachine(name="m", places=1)])
    assert found(places).users() == {}
    assert found(places).is_read


def holding(used: int) -> dict[str, Any]:
    """The answer of a keeper whose job "a" uses this many bytes of the only card."""
    process = {"pid": 1, "user": "me", "memory_bytes": used, "is_compute": True, "job": "a"}
    card = {"index": 0, "uuid": "u", "name": "", "error": "", "memory_bytes": 100, "used_bytes": used}
    return {"gpus": {"source": "nvml", "error": "", "age_s": 0.0, "cards": [{**card, "processes": [process]}]}}


async def test_gpus_are_read_for_display(keeper: TalkativeKeeper, places: Places) -> None:
    """A job got its card before it used any of it, and no other waits."""
    keeper.answers["facts"] = holding(0)
    connection = KeeperConnection(keeper, places)
    await connection.open()
    await connection.serve([KeeperMachine(name="m", places=None)])
    await connection.read_gpus(0)
    keeper.answers["facts"] = holding(70)
    await places.look()
    assert found(places).cards[0].used_by_job == {"a": 0}, "it was read a moment ago"
    connection._gpus_read_s = time.monotonic() - GPU_AGE_S - 1
    await places.look()
    assert found(places).cards[0].used_by_job == {"a": 70}
    keeper.is_there = False
    await places.look()
    await connection.close()
    assert places.on_look == []


async def test_hanging_driver_does_not_delay_display(
    keeper: TalkativeKeeper, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def request(_: str, **__: Any) -> Any:
        await never.wait()

    connection = KeeperConnection(keeper, places)
    await connection.open()
    await connection.serve([KeeperMachine(name="m", places=None)])
    monkeypatch.setattr(keeper, "request", request)
    monkeypatch.setattr(machines, "LOOK_S", 0.01)
    async with asyncio.timeout(5):
        await places.look()
        await places.look()
        await connection.close()


async def test_no_place_is_granted_while_keeper_is_unreachable(keeper: TalkativeKeeper, places: Places) -> None:
    connection = await serving(keeper, places)
    machine = found(places)
    machine.reserve("a", ONE)
    connection.on_down("it broke")
    keeper.is_there = False
    with pytest.raises(PlatformUnavailable):
        await connection.until_read()
    assert machine.has("a") and machine.reserve("b", ONE) is None
    keeper.is_there = True
    await connection.on_up()
    assert not machine.has("a"), "its start was never answered, and it is not listed"
    assert machine.reserve("b", ONE) is not None


async def test_end_of_a_job_wakes_waiting_experiments(keeper: TalkativeKeeper, places: Places) -> None:
    keeper.jobs = {"a": running(0)}
    connection = await serving(keeper, places)
    woken: list[str] = []
    places.line.want("exp", 1, {"m": ONE}, lambda: woken.append("exp"))
    assert woken == []
    connection.on_end("a")
    assert woken == ["exp"]


async def test_offer_not_taken_goes_to_the_next_experiment(keeper: TalkativeKeeper, places: Places) -> None:
    await serving(keeper, places)
    woken = asyncio.Queue[str]()
    for owner in ("first", "second"):
        places.line.want(owner, 1, {"m": ONE}, lambda owner=owner: woken.put_nowait(owner))
    places.watch_offers()
    async with asyncio.timeout(5):
        assert [await woken.get(), await woken.get()] == ["first", "second"]


async def test_a_job_that_ends_while_it_is_forgotten_is_not_waited_for(
    keeper: TalkativeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "_LAST_MOMENT_S", 5.0)
    recorder = Recorder()
    host = recorder.host(keeper)
    keeper.jobs = {"a": running(owner=owner_of(host))}
    jobs = KeeperJobs(host)
    await jobs.enter()
    keeper.meanwhile = lambda: jobs.on_ended("a", {"state": protocol.ENDED}) if keeper.asked[-1][0] == "list" else None
    async with asyncio.timeout(1):
        await jobs.forget(["a"])
    assert ("forget", {"names": ["a"]}) in keeper.asked
    await jobs.leave()


async def test_services_of_one_experiment_have_jobs_of_their_own() -> None:
    host = Recorder("exp1").host(unreachable_keeper())
    owners = [owner_of(replace(host, service=service)) for service in ("local", "scripted", "scripted-2")]
    assert owners == ["exp1", "scripted:exp1", "scripted-2:exp1"]


# ------------------------------------------------------------------------------------------------ before a job runs


def preparing(done: int = 0, size: int = 0) -> dict[str, Any]:
    code = {"step": "unpacked", "done_bytes": done, "size_bytes": size}
    return {"state": protocol.PREPARING, "owner": "o", "code": code}


@pytest.fixture
def waiting() -> KeeperJobs:
    """The jobs of a service; `a` was accepted and does not run yet."""
    jobs = KeeperJobs(Recorder().host(unreachable_keeper()))
    jobs._connected.set()
    jobs.on_changed("a", preparing())
    return jobs


def known(jobs: KeeperJobs) -> Observation:
    return jobs._reports["a"]


@pytest.mark.parametrize(
    ("progress", "sentence"),
    [
        ((0, 0), "its code is being unpacked"),
        ((140_000_000, 300_200_000), "its code is being unpacked, 140 of 300 MB"),
    ],
)
def test_preparing_job_reports_its_code_progress(waiting: KeeperJobs, progress: tuple[int, int], sentence: str) -> None:
    waiting.on_changed("a", preparing(*progress))
    report = known(waiting)
    assert report.state is JobState.PENDING and report.wait is not None and report.wait.sentence == sentence


@pytest.mark.parametrize(
    ("kind", "state", "is_untaken"),
    [
        (protocol.UNAVAILABLE, JobState.LOST, True),
        (protocol.REJECTED, JobState.FAILED, False),
    ],
)
def test_refused_preparing_job_is_reported_as_failed(
    waiting: KeeperJobs, kind: str, state: JobState, is_untaken: bool
) -> None:
    waiting.on_refused("a", kind, "the disk is full")
    report = known(waiting)
    assert (report.state, report.is_untaken, report.message) == (state, is_untaken, "the disk is full")


@pytest.mark.parametrize("has_run", [False, True])
def test_preparing_job_is_lost_with_its_keeper(waiting: KeeperJobs, has_run: bool) -> None:
    if has_run:
        waiting.on_changed("a", {"state": protocol.RUNNING, "owner": "o"})
    waiting.on_disconnected()
    assert waiting._note_all({"jobs": {}, "unknown": ["a"]}) == (["a"] if has_run else [])
    if not has_run:
        assert (known(waiting).state, known(waiting).is_untaken) == (JobState.LOST, True)


def test_rejected_job_can_be_submitted_again(waiting: KeeperJobs) -> None:
    waiting.on_refused("a", protocol.UNAVAILABLE, "the disk is full")
    waiting.on_changed("a", preparing())
    assert known(waiting).state is JobState.PENDING


@pytest.mark.parametrize("event", ["changed", "refused"])
async def test_event_after_a_spawn_answer_is_newer(keeper: TalkativeKeeper, event: str) -> None:
    jobs, tell = await entered(keeper), tells(event)
    keeper.answers["spawn"] = preparing()
    keeper.meanwhile = lambda: tell(jobs) if keeper.asked[-1][0] == "spawn" else None
    report = await jobs.submit("a", {})
    assert known(jobs) is report and report.state is (JobState.RUNNING if event == "changed" else JobState.LOST)
    await jobs.leave()


@pytest.mark.parametrize("event", ["changed", "refused"])
async def test_event_after_a_follow_answer_is_newer(keeper: TalkativeKeeper, event: str) -> None:
    jobs, tell = await entered(keeper), tells(event)
    keeper.answers["follow"] = {"jobs": {"a": preparing()}, "unknown": []}
    keeper.meanwhile = lambda: tell(jobs) if keeper.asked[-1][0] == "follow" else None
    reports = await jobs.reports(["a"])
    assert reports["a"].state is (JobState.RUNNING if event == "changed" else JobState.LOST)
    await jobs.leave()


def tells(event: str) -> Callable[[KeeperJobs], None]:
    if event == "changed":
        return lambda jobs: jobs.on_changed("a", {"state": protocol.RUNNING, "owner": "o"})
    return lambda jobs: jobs.on_refused("a", protocol.UNAVAILABLE, "the disk is full")


async def entered(keeper: TalkativeKeeper) -> KeeperJobs:
    jobs = KeeperJobs(Recorder().host(keeper))
    await jobs.enter()
    jobs._connected.set()
    return jobs
