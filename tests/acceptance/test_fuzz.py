"""A short fuzz of all listeners; ``python -m tests.fuzz`` is the long one."""

from __future__ import annotations

import pytest

from tests.fuzz.run import run

#: Calls per group of routes; a quarter of a minute in total.
CALLS = 60

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # warnings of the generator of calls, not of ours
def test_daemon_survives_made_up_calls() -> None:
    reports = list(run(CALLS, seed=20))
    assert {"experiments", "trials", "results", "logs", "daemon", "nni", "malformed"} <= {
        each.group for each in reports
    }
    assert all(each.calls >= CALLS for each in reports[:-1]), [str(each) for each in reports]
    assert [str(each) for each in reports if each.problems] == []
