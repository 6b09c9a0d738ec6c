"""In-memory training services, scripted by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import httpx
import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.experiment import Json
from nni_manager.domain.job import JobHandle, JobSpec
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Host, NoRoom, Room
from tests.api.world import MemoryPlatform, World

EXPERIMENTS = "/api/v1/experiments"


class Acted(MemoryPlatform):
    """Script by name of the service; emptied by `act`."""

    #: What all verbs raise.
    trouble: ClassVar[dict[str, Exception]] = {}
    rooms: ClassVar[dict[str, Room]] = {}
    made: ClassVar[dict[str, Acted]] = {}
    #: State of a new job; None: it runs.
    first: ClassVar[Observation | None] = None

    def __init__(self, settings: Json, host: Host) -> None:
        super().__init__(settings, host)
        self.made[host.service] = self

    def _may_raise(self) -> None:
        if (error := self.trouble.get(self.host.service)) is not None:
            raise error

    async def __aenter__(self) -> Self:
        self._may_raise()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        pass

    def room(self) -> Room:
        return self.rooms.get(self.host.service, Room())

    async def submit(self, spec: JobSpec) -> JobHandle | NoRoom:
        self._may_raise()
        if self.first is not None:
            self.jobs.setdefault(spec.name, self.first)
        return await super().submit(spec)

    async def observe(self, handles: Sequence[JobHandle]) -> dict[JobHandle, Observation]:
        self._may_raise()
        return await super().observe(handles)

    async def cancel(self, handles: Sequence[JobHandle], grace_period_s: float) -> None:
        self._may_raise()
        await super().cancel(handles, grace_period_s)

    async def forget(self, handles: Sequence[JobHandle]) -> None:
        self._may_raise()
        await super().forget(handles)

    def tell(self, job_name: str, report: Observation) -> None:
        self.jobs[job_name] = report
        self.host.wake(job_name)


def act(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training services are `Acted` from now on; after `make_world`."""
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: Acted)
    for name in ("trouble", "rooms", "made"):
        monkeypatch.setattr(Acted, name, {})
    monkeypatch.setattr(Acted, "first", None)


async def create(api: httpx.AsyncClient, world: World, *platforms: str, **fields: object) -> str:
    sections = [{"platform": platform} for platform in platforms] or [{"platform": "local"}]
    answer = await api.post(EXPERIMENTS, json=world.config(trainingService=sections, **fields))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def add_trial(api: httpx.AsyncClient, id: str) -> str:
    answer = await api.post(f"{EXPERIMENTS}/{id}/trials", json={"parameters": {"x": 1}})
    return str(answer.json()["id"])


async def shown(api: httpx.AsyncClient, path: str, condition: Callable[[Any], object], within_s: float = 5.0) -> Any:
    """The answer, once it satisfies the condition."""
    async with asyncio.timeout(within_s):
        while not condition(found := (await api.get(f"{EXPERIMENTS}/{path}")).json()):  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.01)
    return found
