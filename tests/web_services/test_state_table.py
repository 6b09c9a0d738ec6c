"""Words of a service for its jobs: known ones, expected unknown ones, and an unknown one."""

from __future__ import annotations

import pytest

from nni_manager.domain.job import JobState
from nni_manager.web_services.jobs import StateTable

pytestmark = pytest.mark.unit


def test_unknown_status_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    table = StateTable("Hive", {"buzzing": JobState.RUNNING, "misty": JobState.UNKNOWN})
    words = ("buzzing", "misty", "swarming", "swarming", "x" * 500)
    assert [table.state(word) for word in words] == [JobState.RUNNING, *4 * [JobState.UNKNOWN]]
    named, long = caplog.messages
    assert named.startswith("Hive reported the unknown status 'swarming' of a job") and len(long) < 250


def test_unknown_status_is_logged_per_service(caplog: pytest.LogCaptureFixture) -> None:
    for service in ("Hive", "Nest"):
        StateTable(service, {}).state("swarming")
    assert len(caplog.messages) == 2
