"""Evidence of ended jobs of PAI-DLC, and the cause of the end."""

from __future__ import annotations

from typing import Any

import pytest

from nni_manager.domain.job import JobState
from nni_manager.platforms.dlc import states

pytestmark = pytest.mark.unit
_TAKEN = {"ReasonCode": "SpotInstanceReleased", "ReasonMessage": "The spot instance was released."}
_FAILED = {"Status": "Failed", "ReasonCode": "JobFailedByUser", "ReasonMessage": "An exit code is not 0."}


@pytest.mark.parametrize(
    "item",
    [
        {"Status": "Failed", **_TAKEN},
        {**_FAILED, "ReasonCode": "", "SubStatus": "Preempted"},
        {"Status": "Failed", "StatusHistory": [{"Status": "Running"}, {"Status": "Failed", **_TAKEN}]},
        {"Status": "Failed", "RestartRecord": [{"RestartStatus": "Failed", "Reason": "Preempted by another job"}]},
        {"Status": "Stopped", "ReasonCode": "JobPreempted"},
    ],
)
def test_reclaimed_machine_is_a_preemption(item: dict[str, Any]) -> None:
    report = states.job_report(item, "")
    assert report.state is JobState.PREEMPTED
    assert report.native_reason == str(item.get("ReasonCode") or "")


@pytest.mark.parametrize(
    ("item", "state"),
    [
        (_FAILED, JobState.FAILED),
        ({**_FAILED, "StatusHistory": [{"Status": "Restarting", **_TAKEN}, _FAILED]}, JobState.FAILED),
        ({**_FAILED, "RestartRecord": [{"RestartStatus": "Succeeded", "Reason": "Preempted"}]}, JobState.FAILED),
        ({"Status": "Restarting", "SubStatus": "Preempted", **_TAKEN}, JobState.RUNNING),
        ({"Status": "Stopped", "SubStatus": "Preempted", "ReasonCode": "StoppedByUser"}, JobState.CANCELLED),
        ({"Status": "Succeeded", "SubStatus": "Preempted"}, JobState.SUCCEEDED),
    ],
)
def test_events_before_the_end_do_not_count(item: dict[str, Any], state: JobState) -> None:
    assert states.job_report(item, "").state is state
