"""What waits for a turn, and what is shown of it meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.scheduler.turns import inbox as inboxes
from nni_manager.scheduler.turns.inbox import Inbox

pytestmark = pytest.mark.unit

PENDING, RUNNING, UNKNOWN = (
    Observation(state=state) for state in (JobState.PENDING, JobState.RUNNING, JobState.UNKNOWN)
)
RUNNING_HERE, SUCCEEDED = Observation(state=JobState.RUNNING, place="here"), Observation(state=JobState.SUCCEEDED)
REFUSED = Hold(code=HoldCode.BAD_CREDENTIALS, sentence="no")


async def test_a_hold_of_one_service_is_not_the_experiments() -> None:
    inbox = Inbox()
    inbox.put_on_hold(REFUSED, "scripted-2")
    for is_taken in (False, True):
        if is_taken:
            inbox.take(judged_bad=(), failure=None)
        assert inbox.hold is None and inbox.hold_of("scripted") is None
        assert inbox.hold_of("scripted-2") == REFUSED
    inbox.stored()
    assert inbox.hold_of("scripted-2") is None


def due(inbox: Inbox) -> str:
    """When the next turn begins: now, soon, late or never."""
    loop, alarm = asyncio.get_running_loop(), inbox._soon
    if inbox._rung.is_set():
        return "now"
    if alarm is None:
        return "never"
    return "soon" if alarm.when() <= loop.time() + inboxes.GATHER_S else "late"


@pytest.mark.parametrize(
    ("reports", "decided", "when"),
    [
        ([PENDING], (), "late"),
        ([RUNNING], (), "soon"),
        ([RUNNING, RUNNING_HERE], (), "late"),
        ([RUNNING, UNKNOWN], (), "soon"),
        ([UNKNOWN, UNKNOWN], (), "late"),
        ([RUNNING, SUCCEEDED], (), "now"),
        ([RUNNING, SUCCEEDED], ("job",), "late"),
    ],
)
async def test_only_trial_changes_start_a_turn_soon(
    monkeypatch: pytest.MonkeyPatch, reports: list[Observation], decided: tuple[str, ...], when: str
) -> None:
    """A cluster tells of a pod again and again; a turn for each cost more than all else that is done with it."""
    monkeypatch.setattr(inboxes, "GATHER_S", 600.0)
    monkeypatch.setattr(inboxes, "DETAIL_S", 6000.0)
    inbox = Inbox()
    for report in reports:
        inbox.begin_turn()
        inbox.take(judged_bad=(), failure=None)
        inbox.report({"job": report}, decided)
    assert due(inbox) == when
    assert inbox.take(judged_bad=(), failure=None).seen.reports == {"job": reports[-1]}, "nothing is left out"


async def test_final_state_starts_a_turn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes, "GATHER_S", 600.0)
    monkeypatch.setattr(inboxes, "DETAIL_S", 6000.0)
    inbox = Inbox()
    inbox.report({"job": PENDING})
    assert due(inbox) == "late"
    inbox.report({"job": RUNNING})
    assert due(inbox) == "soon"
    inbox.report({"job": RUNNING_HERE})
    assert due(inbox) == "soon"
    inbox.begin_turn()
    assert due(inbox) == "never"


@pytest.mark.parametrize("decided", [(), ("job",)])
async def test_repeated_observation_is_not_news(decided: tuple[str, ...]) -> None:
    """A service observes a job at each change of its pods, and most change nothing of the job."""
    inbox = Inbox()
    inbox.report({"job": RUNNING_HERE})
    inbox.begin_turn()
    inbox.take(judged_bad=(), failure=None)
    inbox.report({"job": RUNNING_HERE}, decided)
    assert due(inbox) == "never" and inbox.is_empty


async def test_of_a_job_that_is_decided_only_the_end_is_news() -> None:
    inbox = Inbox()
    inbox.report({"job": RUNNING}, ("job",))
    assert due(inbox) == "never" and inbox.is_empty
    inbox.report({"job": SUCCEEDED}, ("job",))
    assert due(inbox) == "late"


@pytest.mark.parametrize("between", [UNKNOWN, RUNNING])
async def test_an_observation_counts_again_after_another_one(between: Observation) -> None:
    inbox = Inbox()
    for report in (RUNNING_HERE, between, RUNNING_HERE):
        inbox.take(judged_bad=(), failure=None)
        inbox.report({"job": report})
        assert inbox.take(judged_bad=(), failure=None).seen.reports == {"job": report}


async def test_repeated_end_counts_as_lines_may_be_missing() -> None:
    inbox = Inbox()
    for _ in range(2):
        inbox.report({"job": SUCCEEDED})
        assert inbox.take(judged_bad=(), failure=None).seen.reports == {"job": SUCCEEDED}


async def test_report_of_earlier_submission_is_news_for_next() -> None:
    inbox = Inbox()
    inbox.report({"job": PENDING})
    inbox.take(judged_bad=(), failure=None)
    inbox.accepted(JobHandle(platform="scripted", version=1, job_name="job", data=""))
    inbox.report({"job": PENDING})
    assert inbox.take(judged_bad=(), failure=None).seen.reports == {"job": PENDING}


async def test_events_of_failed_turn_are_news_again() -> None:
    inbox = Inbox()
    inbox.report({"job": RUNNING})
    inbox.put_on_hold(REFUSED, "scripted")
    inbox.take(judged_bad=(), failure=None)
    inbox.lost()
    assert inbox.hold_of("scripted") is None, "it is neither stored nor waiting to be"
    inbox.report({"job": RUNNING})
    assert inbox.take(judged_bad=(), failure=None).seen.reports == {"job": RUNNING}
