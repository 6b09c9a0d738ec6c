"""The states of completed Frameworks, by their completion codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.job import JobState
from nni_manager.domain.reason import Reason
from nni_manager.platforms.frameworkcontroller import states

pytestmark = pytest.mark.unit


def completed(code: int, diagnostics: str) -> Observation:
    told = {"code": code, "phrase": "Phrase", "type": {"name": "Failed", "attributes": []}, "diagnostics": diagnostics}
    return states.report({"status": {"state": "Completed", "attemptStatus": {"completionStatus": told}}})


def not_created(code: int, message: str) -> Observation:
    told = {"ErrStatus": {"message": message, "reason": "Forbidden", "code": 403}}
    return completed(code, f"Failed to create Pod: {json.dumps(told)}")


@pytest.mark.parametrize("code", [-200, -310])
def test_pod_refused_by_server_is_refused_job_with_message(code: int) -> None:
    report = not_created(code, 'pods "x" is forbidden: violates PodSecurity "restricted:latest"')
    assert (report.state, report.cause) == (JobState.FAILED, Reason.SUBMIT_REJECTED)
    assert report.message == 'Failed to create Pod: pods "x" is forbidden: violates PodSecurity "restricted:latest"'


@pytest.mark.parametrize(
    "message",
    [
        'pods "x" is forbidden: status unknown for quota: team, resources: pods',
        'pods "x" is forbidden: not yet ready to handle request',
        "Post http://server/pods: read tcp: connection reset by peer",
    ],
)
def test_refusal_that_passes_by_itself_is_tried_again(message: str) -> None:
    report = not_created(-310, message)
    assert (report.state, report.cause) == (JobState.PREEMPTED, None)
    assert message in report.message


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        ({"reason": "OutOfcpu", "message": "no room"}, JobState.PREEMPTED),
        ({"reason": "DeadlineExceeded", "message": "too long"}, JobState.FAILED),
        ({}, JobState.PREEMPTED),
    ],
)
def test_pod_that_failed_without_a_container(pod: dict[str, Any], state: JobState) -> None:
    report = completed(-300, f"Pod failed: PodPattern unmatched: {json.dumps(pod)}")
    assert (report.state, report.cause) == (state, None)
    assert report.native_reason == pod.get("reason", "Phrase")
    assert pod.get("message", "") in report.message


def test_non_json_diagnostics_are_shown_unchanged() -> None:
    assert completed(-310, "Failed to create Pod: odd").message == "Failed to create Pod: odd"
    assert completed(-300, "Pod failed: odd").message == "Pod failed: odd"
