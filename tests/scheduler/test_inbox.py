"""What waits for a turn, and what is shown of it meanwhile."""

from __future__ import annotations

import pytest

from nni_manager.domain.experiment import Hold, HoldCode
from nni_manager.scheduler.turns.inbox import Inbox

pytestmark = pytest.mark.unit

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
