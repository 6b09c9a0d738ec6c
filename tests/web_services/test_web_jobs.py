"""What jobs of web services have in common."""

from __future__ import annotations

import pytest

from nni_manager.domain.job import JobHandle
from nni_manager.web_services.jobs import name_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("data", ["nni-a-b", '{"name": "nni-a-b"}'])
def test_a_job_in_a_database_of_an_earlier_version_is_found(data: str) -> None:
    assert name_of(JobHandle(platform="aml", version=1, job_name="b", data=data)) == "nni-a-b"
