"""Events found by a job's name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nni_manager.kubernetes.observing.following import EventIndex, about

pytestmark = pytest.mark.unit


def event(name: str, whose: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "involvedObject": {"name": whose}}


def test_job_events_include_objects_named_after_job() -> None:
    wanted = [event("a", "job-1"), event("b", "job-1-worker-0"), event("c", "job-1-0")]
    others = [event("d", "job"), event("e", "job-10"), event("f", "job-1x"), event("g", "job-1.x"), event("h", "z")]
    index = EventIndex([*others, *wanted, {"metadata": {"name": "i"}}])
    assert sorted(one["metadata"]["name"] for one in index.of_job("job-1")) == ["a", "b", "c"]


def test_repeated_event_is_replaced_and_removed_event_is_gone() -> None:
    index = EventIndex([event("a", "job"), event("b", "job-0")])
    newer = event("a", "job") | {"count": 2}
    index.put(newer)
    index.drop(event("b", "job-0"))
    index.drop(event("never", "job"))
    assert list(index.of_job("job")) == [newer]


def test_reused_event_name_concerns_new_object() -> None:
    index = EventIndex([event("a", "job-9"), event("b", "job-5")])
    index.put(event("a", "job-1"))
    assert not list(index.of_job("job-9"))
    assert list(index.of_job("job-1")) == [event("a", "job-1")]
    index.drop(event("a", "job-1"))
    assert not list(index.of_job("job-1"))
    assert list(index.of_job("job-5")) == [event("b", "job-5")]


def test_index_finds_same_events_as_full_scan() -> None:
    rng = random.Random(5)
    names = [f"j{rng.randrange(30)}{rng.choice(['', '-0', '-worker-1', '.x', '0'])}" for _ in range(500)]
    events = [event(f"e{number}", name) for number, name in enumerate(names)]
    index = EventIndex(events)
    for gone in rng.sample(events, 100):
        index.drop(gone)
        events.remove(gone)
    for job in {f"j{number}" for number in range(31)}:
        expected = [one for one in events if about(one) == job or about(one).startswith(f"{job}-")]
        assert sorted(index.of_job(job), key=str) == sorted(expected, key=str)
