"""Calls that follow a turn, when there are many."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nni_manager.scheduler.planning import decisions as d
from nni_manager.scheduler.turns.actions import Actions
from tests.turns_of_others import turns_of_others

pytestmark = pytest.mark.unit


async def test_other_work_goes_on_between_many_calls() -> None:
    asked: list[int] = []
    nothing = cast(Any, None)
    actions = Actions(
        services={},
        inbox=nothing,
        jobs=nothing,
        spec=nothing,
        heartbeats=nothing,
        want=asked.append,
        clock=lambda: 0,
        code=nothing,
        output=nothing,
    )
    async with turns_of_others() as turns:
        await actions.perform([d.AskTuner(count=number) for number in range(1000)])
    assert asked == [*range(1000)]
    assert turns() >= 10
