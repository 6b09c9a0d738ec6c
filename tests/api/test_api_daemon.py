"""Probes, the daemon's description, its end."""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest

from nni_manager.api.application import OPENAPI
from nni_manager.api.schemas.daemon import Daemon
from nni_manager.domain.experiment import ExperimentStatus, Hold, HoldCode
from nni_manager.scheduler.experiments import supervisor
from nni_manager.scheduler.experiments.supervisor import Supervisor
from nni_manager.store.folder import Folder
from tests.api.world import CREATED_MS, World

pytestmark = pytest.mark.unit


async def test_health_and_readiness(api: httpx.AsyncClient, world: World) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    assert (await api.get("/readyz")).json() == {"status": "ok"}
    await world.lose_index()
    answer = await api.get("/readyz")
    assert answer.status_code == 503 and "index.sqlite cannot be opened" in answer.json()["error"]
    assert (await api.get("/healthz")).status_code == 200


async def test_head_is_get_without_the_body(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/experiments", "/api/v1/experiments/nope", OPENAPI):
        head, get = await api.head(path), await api.get(path)
        assert (head.status_code, head.headers.keys(), head.content) == (get.status_code, get.headers.keys(), b"")
    assert (await api.head("/api/v1/daemon/stop")).status_code == 405
    described = (await api.get(OPENAPI)).json()["paths"].values()
    assert not any("head" in operations for operations in described)


async def test_daemon_description(api: httpx.AsyncClient, world: World) -> None:
    await world.add("seeded")
    answer = await api.get("/api/v1/daemon")
    Daemon.model_validate_json(answer.content)
    assert answer.json() == {
        "version": "1.2.3",
        "pid": os.getpid(),
        "dataDirectory": str(world.data),
        "startedMs": CREATED_MS,
        "listeners": [{"kind": "control", "address": "/run/control.sock"}],
        "experiments": 1,
        "endsByItself": False,
    }


@pytest.mark.parametrize(("body", "stops"), [(None, False), ({}, False), ({"experiments": True}, True)])
async def test_stop_request_ends_the_daemon(api: httpx.AsyncClient, world: World, body: object, stops: bool) -> None:
    answer = (
        await api.post("/api/v1/daemon/stop", json=body) if body is not None else await api.post("/api/v1/daemon/stop")
    )
    assert answer.status_code == 202 and world.daemon_stops == [stops]


async def test_invalid_stop_request_ends_nothing(api: httpx.AsyncClient, world: World) -> None:
    answer = await api.post("/api/v1/daemon/stop", json={"experiments": "perhaps"})
    assert answer.status_code == 400 and "experiments" in answer.json()["error"] and world.daemon_stops == []


async def test_unexpected_error_in_one_experiment_spares_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id_ in ("first", "second"):
        await world.add(id_, status=ExperimentStatus.RUNNING)
    opened = supervisor.open_experiment

    async def fail(folder: Folder, *rest: Any) -> Any:
        if folder.path.name == "first":
            raise KeyError("phase")
        return await opened(folder, *rest)

    monkeypatch.setattr(supervisor, "open_experiment", fail)
    again = Supervisor(world.supervisor.index, world.supervisor.shared)
    async with again.running():
        assert again.open_ids == ("second",)
        assert again.has_work and again.to_stop == ("second", "first")
        sentence = "experiment first cannot be opened: KeyError('phase'); this is a bug, please report it"
        assert again.not_opened == {"first": Hold(code=HoldCode.INTERNAL, sentence=sentence)}
