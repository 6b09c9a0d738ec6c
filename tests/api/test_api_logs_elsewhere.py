"""Logs of jobs without a local folder: read through their service while it has them, then kept here."""

from __future__ import annotations

from typing import ClassVar

import httpx
import pytest

from nni_manager.domain.attempt import Observation
from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.domain.job import JobHandle, JobState
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.turns import forgetting
from tests.api.services import EXPERIMENTS, Acted, act, add_trial, create, shown
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


class Far(Acted):
    capabilities = Capabilities(watches=True, reads_files=True)
    logs: ClassVar[dict[str, bytes]] = {}

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        self._may_raise()
        if name not in self.logs:
            raise NotFound(f"cannot find {name}")
        text = self.logs[name]
        start = max(0, len(text) + offset) if offset < 0 else offset
        return text[start : start + limit]


@pytest.fixture(autouse=True)
def far(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch)
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: Far)
    monkeypatch.setattr(Far, "logs", {"stdout": b"0123456789"})


async def running(api: httpx.AsyncClient, world: World) -> tuple[str, str, str]:
    id_ = await create(api, world)
    trial_id = await add_trial(api, id_)
    found = await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
    return id_, f"{EXPERIMENTS}/{id_}/trials/{trial_id}/logs", found["attempts"][0]["jobName"]


async def test_log_is_read_through_the_service(api: httpx.AsyncClient, world: World) -> None:
    _, logs, _ = await running(api, world)
    for query, text, offset in (("", "0123456789", 0), ("?offset=-4&limit=2", "67", 6), ("?offset=8", "89", 8)):
        answer = await api.get(f"{logs}/stdout{query}")
        assert (answer.status_code, answer.text) == (200, text)
        assert (answer.headers["X-Offset"], answer.headers["X-Size"]) == (str(offset), "10")
    assert (await api.get(f"{logs}/stderr")).status_code == 404
    Acted.trouble["local"] = PlatformUnavailable("no route to host")
    assert (await api.get(f"{logs}/stdout")).status_code == 503


async def test_nni_routes_read_through_the_service(api: httpx.AsyncClient, world: World) -> None:
    id_, _, job = await running(api, world)
    files = f"/experiments/{id_}/api/v1/nni/trial-file/{job.rpartition('_')[2]}"
    Far.logs["model.bin"] = bytes(range(8))
    assert (await api.get(f"{files}/stdout")).text == "0123456789"
    assert (await api.get(f"{files}/stderr")).text == "stderr is empty."
    answer = await api.get(f"{files}/model.bin")
    assert (answer.content, answer.headers["Content-Type"]) == (bytes(range(8)), "application/octet-stream")
    assert (await api.get(f"{files}/nothing.bin")).status_code == 404


async def test_last_attempt_log_is_kept(api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "KEPT_BYTES", 4)
    id_, logs, job = await running(api, world)
    Acted.made["local"].tell(job, Observation(state=JobState.SUCCEEDED, exit_code=0, started_ms=5, ended_ms=9))
    await shown(api, id_, lambda one: one["counts"] == {"SUCCEEDED": 1})
    await api.post(f"{EXPERIMENTS}/{id_}/stop")
    Far.logs.clear()
    assert (await api.get(f"{logs}/stdout")).text == "6789"
    assert (await api.get(f"{logs}/stderr")).status_code == 404


async def test_local_log_is_not_overwritten(api: httpx.AsyncClient, world: World) -> None:
    id_, logs, job = await running(api, world)
    folder = (await world.commands.entry(id_)).folder.trials / job.rpartition("_")[2]
    folder.mkdir(parents=True)
    (folder / "stdout").write_text("from here")
    Acted.made["local"].tell(job, Observation(state=JobState.SUCCEEDED, exit_code=0, started_ms=5, ended_ms=9))
    await shown(api, id_, lambda one: one["counts"] == {"SUCCEEDED": 1})
    await api.post(f"{EXPERIMENTS}/{id_}/stop")
    assert (await api.get(f"{logs}/stdout")).text == "from here"


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000])
async def test_the_size_of_a_log_is_found(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "KEPT_BYTES", 4)
    asked = 0

    async def read_file(_handle: JobHandle, _name: str, offset: int, limit: int) -> bytes:
        nonlocal asked
        asked += 1
        start = max(0, length + offset) if offset < 0 else offset
        return bytes(length)[start : start + limit]

    handle = JobHandle(platform="far", version=1, job_name="j")
    assert await forgetting.log_size(handle, "stdout", read_file) == length
    assert asked <= 22 and (length >= 4 or asked == 1)
