"""The file of the machines that jobs were started on, read while others are written down."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nni_manager.domain.ids import job_name
from nni_manager.platforms.remote.machine_jobs import JobLocations

pytestmark = pytest.mark.unit

_FIRST = job_name("exp", "trial0", 1)


@pytest.fixture
def threads_alternate() -> Iterator[None]:
    """Threads take turns as often as they can, so that what they share is met half changed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_alternate")
async def test_trials_are_looked_for_while_others_are_written_down(tmp_path: Path) -> None:
    locations = JobLocations(tmp_path)
    await locations.put(_FIRST, "one")
    for number in range(2000):
        locations.know(f"job{number}", "two")
    putting = [asyncio.ensure_future(locations.put(f"next{number}", "three")) for number in range(500)]
    while not all(task.done() for task in putting):
        assert locations.machines(_FIRST) == ["one"]
        assert locations.has_jobs_on("two")
        assert {"one", "two"} <= locations.used()
        await asyncio.sleep(0)
    assert "three" in locations.used()


async def test_machines_of_a_trial_stand_in_the_order_of_its_attempts(tmp_path: Path) -> None:
    locations = JobLocations(tmp_path)
    for attempt, machine in ((1, "one"), (2, "two"), (10, "one"), (9, "three")):
        await locations.put(job_name("exp", "trial", attempt), machine)
    await locations.put(job_name("exp", "trial1", 2), "four")
    first = job_name("exp", "trial", 1)
    assert locations.machines(first) == ["one", "three", "two"]
    assert locations.machines(first, before=10) == ["three", "two", "one"]
    assert locations.machines(first, before=1) == []
    assert locations.machines(job_name("exp", "other", 1)) == []


async def test_next_daemon_reads_last_note(tmp_path: Path) -> None:
    locations = JobLocations(tmp_path / "service")
    await locations.put("a", "one")
    await asyncio.gather(locations.give_up(["a", "b"]), locations.put("b", "two"))
    await locations.put("c", "one")
    await locations.note_gone(["c"])
    following = JobLocations(tmp_path / "service")
    await following.load()
    for known in (locations, following):
        assert (known.is_wanted("a"), known.is_wanted("b"), known.is_wanted("c")) == (False, True, False)
        assert known.has_jobs_on("one") and known.has_jobs_on("two")
        assert known.used() == {"one", "two"}
    await following.note_gone(["a"])
    assert not following.has_jobs_on("one")
