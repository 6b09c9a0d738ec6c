"""Processes of scripted jobs at a keeper that is told what to answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nni_manager.platforms.scripted import processes
from nni_manager.platforms.scripted.processes import Processes
from trial_runner import protocol

pytestmark = pytest.mark.unit


class HastyKeeper:
    """Says that a job runs, and tells of its end before anybody can read that."""

    def __init__(self) -> None:
        self.processes: Processes
        self.forgotten: list[str] = []

    async def request(self, verb: str, **fields: Any) -> Any:
        if verb == "forget":
            self.forgotten += fields["names"]
        if verb == "list":
            self.processes.on_ended("a", {})
            return {"jobs": {"a": {"owner": "scripted:exp1", "state": protocol.RUNNING}}}
        return {}


async def test_a_job_that_ends_while_it_is_forgotten_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LAST_MOMENT_S", 5.0)
    keeper = HastyKeeper()
    host = SimpleNamespace(keeper=keeper, experiment_id="exp1")
    keeper.processes = Processes(cast(Any, host), cast(Any, None), cast(Any, SimpleNamespace(wake=lambda name: None)))
    async with asyncio.timeout(1):
        await keeper.processes.forget(["a"])
    assert keeper.forgotten == ["a"]
