"""Sequences recorded from real controllers, cut and repeated at random: what is told of a job only ever goes on, and
its end is the one that was written down by hand."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.kubernetes.api.client import Object
from nni_manager.kubernetes.api.informer import Informer
from nni_manager.kubernetes.api.names import EVENTS, PODS, Resource
from nni_manager.kubernetes.jobs.job_memory import JobMemory
from nni_manager.kubernetes.observing.following import Following
from nni_manager.platforms.adl import states as adl
from nni_manager.platforms.frameworkcontroller import states as frameworks
from nni_manager.platforms.kubeflow import states as kubeflow
from tests.fakes.kubernetes import definitions
from tests.platforms import kubernetes_replay
from tests.platforms.kubernetes_replay import Recorded, Replay

pytestmark = [pytest.mark.unit, pytest.mark.looptime]

#: Broken watches for each kind of job, over all plays.
CUTS = 1000
PENDING, RUNNING = JobState.PENDING, JobState.RUNNING
SUCCEEDED, FAILED = JobState.SUCCEEDED, JobState.FAILED


@dataclass(frozen=True)
class Stream:
    """What must come of one recording."""

    resource: Resource
    read: Callable[[Object], Observation]
    container: str
    #: Job → state, exit code, reason, and part of the message at the end.
    ends: dict[str, tuple[JobState, int | None, str, str]]


STREAMS = {
    "tfjobs": Stream(
        Resource("kubeflow.org", "v1", "tfjobs", "TFJob"),
        kubeflow.report,
        "tensorflow",
        {
            "tf1": (SUCCEEDED, None, "TFJobSucceeded", "successfully completed"),
            "tffail": (FAILED, 7, "TFJobFailed", "1 Worker replica(s) failed"),
        },
    ),
    "pytorchjobs": Stream(
        Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
        kubeflow.report,
        "pytorch",
        {
            "pt1": (SUCCEEDED, None, "PyTorchJobSucceeded", "successfully completed"),
        },
    ),
    "frameworks": Stream(
        Resource("frameworkcontroller.microsoft.com", "v1", "frameworks", "Framework"),
        frameworks.report,
        "c",
        {
            "fw1": (SUCCEEDED, 0, "Succeeded", "SucceededTaskCount 2 has reached MinSucceededTaskCount 2"),
            "fwfail": (FAILED, 5, "ContainerUnrecognizedFailed", "FailedTaskCount 1 has reached MinFailedTaskCount 1"),
        },
    ),
    "adaptdljobs": Stream(
        Resource("adaptdl.petuum.com", "v1", "adaptdljobs", "AdaptDLJob"),
        adl.report,
        "main",
        {
            "ad1": (SUCCEEDED, None, "Succeeded", ""),
        },
    ),
}
#: No recorded job ever waited for anything but its turn.
NO_WAIT = None


@functools.cache
def recorded(plural: str) -> tuple[Recorded, ...]:
    folder = definitions.reference()
    if folder is None:
        pytest.skip("the recorded events are not here")
    return tuple(kubernetes_replay.read(folder / "k8s-events", [plural, "pods"], list(STREAMS[plural].ends)))


class Play:
    """One telling of a recording to the adapter's own parts."""

    def __init__(self, plural: str, seed: int, trouble: float) -> None:
        self._stream = STREAMS[plural]
        self._chance = random.Random(seed)
        random.seed(seed)  # the informers' own waits, so that a play can be played again
        self.replay = Replay(recorded(plural), self._chance, trouble)
        self.seen: dict[str, list[Observation]] = {name: [] for name in self._stream.ends}
        informers = [self._informer(each) for each in (self._stream.resource, PODS, EVENTS)]
        self._informers = informers[:2]
        jobs, pods, events = informers
        self._following = Following(jobs, pods, events, self._stream.read, self._look)
        for name in self._stream.ends:
            uid = next(e.object["metadata"]["uid"] for e in recorded(plural) if e.object["metadata"]["name"] == name)
            memory = JobMemory(job_name=name, name=name, uid=uid, container=self._stream.container, made_s=float("inf"))
            self._following.follow(memory)

    async def tell(self) -> dict[str, list[Observation]]:
        for informer in self._informers:
            informer.start()
        while await self.replay.advance():  # noqa: ASYNC110 - the clock of what was recorded
            await asyncio.sleep(self._chance.choice((0, 0, 0.01, 0.3, 2.0)))
        await self.replay.calm()
        for informer in self._informers:
            informer.try_again()
        await asyncio.sleep(60)
        for informer in self._informers:
            await informer.stop()
            assert _versions(informer.objects) == _versions(self.replay.held(informer.resource.plural))
        self._following.close()
        return self.seen

    def _informer(self, resource: Resource) -> Informer:
        async def client() -> Replay:
            return self.replay

        return Informer(resource, "default", client, query=(), on_trouble=lambda informer: None)  # type: ignore[arg-type]

    def _look(self, name: str) -> None:
        memory = self._following.find(name)
        if memory is not None and memory.object is not None:
            self.seen[name].append(self._following.report(memory))


def check(plural: str, seen: dict[str, list[Observation]], play: str) -> None:
    order = {PENDING: 0, RUNNING: 1, SUCCEEDED: 2, FAILED: 2}
    for name, (state, code, reason, message) in STREAMS[plural].ends.items():
        reports = seen[name]
        states = [report.state for report in reports]
        assert [order[each] for each in states] == sorted(order[each] for each in states), f"{play} {name}: {states}"
        last = reports[-1]
        assert (last.state, last.exit_code, last.native_reason) == (state, code, reason), f"{play} {name}"
        assert message in last.message, f"{play} {name}"
        assert {report.wait for report in reports} == {NO_WAIT}, f"{play} {name}"
        ends = {json.dumps([r.state, r.exit_code, r.native_reason]) for r in reports if r.state.is_final}
        assert len(ends) == 1, f"{play} {name}: an end changed: {ends}"


@pytest.mark.parametrize("plural", STREAMS)
async def test_recorded_sequences(plural: str) -> None:
    play = Play(plural, seed=0, trouble=0.0)
    seen = await play.tell()
    check(plural, seen, "untroubled")
    for name in seen:
        assert {PENDING, RUNNING} <= {report.state for report in seen[name]}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("plural", STREAMS)
async def test_recorded_sequences_cut_and_repeated_at_random(plural: str) -> None:
    cuts = repetitions = gone = seed = 0
    while cuts < CUTS:
        seed += 1
        play = Play(plural, seed, trouble=random.Random(seed).choice((0.1, 0.4, 0.8)))
        check(plural, await play.tell(), f"play {seed}")
        counts = play.replay.counts.values()
        cuts += sum(each.cuts for each in counts)
        repetitions += sum(each.repetitions for each in counts)
        gone += sum(each.gone for each in counts)
    assert repetitions > CUTS / 10 and gone > CUTS / 50


def test_table_matches_recordings() -> None:
    """A recording with a job that the table forgets would go unseen."""
    folder = definitions.reference()
    if folder is None:
        pytest.skip("the recorded events are not here")
    for plural, stream in STREAMS.items():
        lines = Path(folder / "k8s-events" / f"{plural}.jsonl").read_text().splitlines()
        assert {json.loads(line)["object"]["metadata"]["name"] for line in lines} == set(stream.ends)


def _versions(objects: dict[str, Object]) -> dict[str, str]:
    return {name: found["metadata"]["resourceVersion"] for name, found in objects.items()}
