"""Every refusal is one sentence with the right status, and no answer contains a traceback."""

from __future__ import annotations

import inspect
import logging

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from nni_manager.api import errors
from nni_manager.api.application import create_api, create_application
from nni_manager.domain import errors as domain
from nni_manager.domain.errors import ConfigInvalid, MissingExtra, NniManagerError, Problem
from nni_manager.store.database import Database
from tests.api.world import World

pytestmark = pytest.mark.unit

EXPECTED = {
    "InvalidInput": 400,
    "ConfigInvalid": 400,
    "BadDimension": 400,
    "MissingExtra": 400,
    "NotFound": 404,
    "Conflict": 409,
    "AttemptDecided": 409,
    "Ending": 409,
    "AlreadyOwned": 409,
    "StoreCorrupt": 409,
    "StoreGone": 409,
    "SchemaRefused": 409,
    "StoreUnavailable": 503,
    "PlatformUnavailable": 503,
    "AnalysisUnavailable": 503,
}
KINDS = [
    kind
    for _, kind in inspect.getmembers(domain, inspect.isclass)
    if issubclass(kind, NniManagerError) and kind.__module__ == domain.__name__
]


def raising(world: World, error: Exception) -> FastAPI:
    """The API with one route that fails."""
    api = create_api(world.context)
    router = APIRouter()

    @router.get("/api/v1/fails")
    async def fails() -> None:
        raise error

    api.include_router(router)
    return api


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_domain_error_has_its_status(world: World, kind: type[NniManagerError]) -> None:
    problem = Problem(message="must be a number", field="trialConcurrency", file="my.yml", line=3)
    special: dict[type[NniManagerError], NniManagerError] = {
        ConfigInvalid: ConfigInvalid([problem]),
        MissingExtra: MissingExtra("the tuner GPTuner", "scikit-learn", "gp"),
    }
    error = special.get(kind) or kind("what happened and what to do")
    async with world.calling(raising(world, error)) as client:
        answer = await client.get("/api/v1/fails")
    assert answer.status_code == EXPECTED.get(kind.__name__, 500)
    assert answer.json()["error"] == str(error)
    if kind is ConfigInvalid:
        expected = {"message": "must be a number", "field": "trialConcurrency", "file": "my.yml", "line": 3}
        assert answer.json()["problems"] == [expected]


async def test_unexpected_exception_is_logged_and_not_shown(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with world.calling(raising(world, ZeroDivisionError("s3cret"))) as client:
            answer = await client.get("/api/v1/fails")
    assert answer.status_code == 500 and answer.json() == {"error": errors.FAULT}
    assert "s3cret" not in answer.text and "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("path", ["/api", "/api/", "/api/v1", "/api/v2/experiments", "/api/v1/experiments/", "/docs"])
async def test_unknown_paths_are_answered_in_json(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code == 404 and path in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("PUT", "/api/v1/experiments", "GET, HEAD, POST"),
        ("PUT", "/api/v1/experiments/nosuch", "DELETE, GET, HEAD, PATCH"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/api/v1/daemon", "GET, HEAD"),
        ("TRACE", "/readyz", "GET, HEAD"),
    ],
)
async def test_an_unknown_method_names_those_that_are_known(
    api: httpx.AsyncClient, method: str, path: str, known: str
) -> None:
    answer = await api.request(method, path)
    assert answer.status_code == 405 and method in answer.json()["error"]
    assert answer.headers["Allow"] == known


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/stop"),
        ("POST", "/resume"),
        ("POST", "/import"),
        ("GET", "/trials"),
        ("POST", "/trials"),
        ("GET", "/trials/a1b2c"),
        ("POST", "/trials/a1b2c/kill"),
        ("GET", "/trials/a1b2c/logs/stdout"),
        ("GET", "/logs/nnimanager.log"),
        ("GET", "/metrics"),
        ("GET", "/events"),
    ],
)
@pytest.mark.parametrize("id_", ["unknown1", "no.id", "a" * 33])
async def test_an_unknown_experiment_is_not_found(api: httpx.AsyncClient, method: str, path: str, id_: str) -> None:
    body = [] if path == "/import" else {"parameters": {}} if path == "/trials" else {}
    answer = await api.request(method, f"/api/v1/experiments/{id_}{path}", json=None if method == "GET" else body)
    assert answer.status_code == 404 and id_ in answer.json()["error"], answer.text


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "zzzzz"), ("GET", "zz"), ("POST", "zzzzz/kill"), ("POST", "z/kill")]
)
async def test_an_unknown_trial_is_not_found(api: httpx.AsyncClient, world: World, method: str, path: str) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    answer = await api.request(method, f"/api/v1/experiments/{id_}/trials/{path}")
    assert answer.status_code == 404 and path.partition("/")[0] in answer.json()["error"]


async def test_missing_folder_is_reported(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    folder.remove()
    answer = await api.get("/api/v1/experiments/seeded")
    assert answer.status_code == 404 and str(folder.path) in answer.json()["error"]
    assert (await api.get("/api/v1/experiments")).json()["experiments"][0]["id"] == "seeded"


async def test_a_folder_without_its_database_is_not_said_to_be_gone(api: httpx.AsyncClient, world: World) -> None:
    folder = await world.add("seeded")
    folder.database.unlink()
    answer = await api.get("/api/v1/experiments/seeded")
    assert answer.json()["error"].startswith(f"the database of experiment seeded is gone: {folder.database}")


class _OnAFullDisk(Database):
    """A turn that can write again does not clear the store's error."""

    trouble = property(lambda _: "the disk is full", lambda *_: None)  # type: ignore[assignment]


async def test_a_store_in_trouble_refuses_commands(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = (await api.post("/api/v1/experiments", json=world.config())).json()["id"]
    experiment = world.commands.at_work(id_)
    assert experiment is not None
    monkeypatch.setattr(experiment.database, "__class__", _OnAFullDisk)
    answer = await api.post(f"/api/v1/experiments/{id_}/trials", json={"parameters": {}})
    assert answer.status_code == 503 and "the disk is full" in answer.json()["error"]
    described = (await api.get(f"/api/v1/experiments/{id_}")).json()
    assert described["hold"]["code"] == "STORE_UNAVAILABLE" and described["errors"] == ["the disk is full"]


async def test_other_paths_go_to_the_pages(world: World) -> None:
    async def pages(scope: object, receive: object, send: object) -> None:
        raise AssertionError("asked")

    application = create_application(world.context, pages=pages)  # type: ignore[arg-type]
    async with world.calling(application) as client:
        assert (await client.get("/api/unknown")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200
        usual = await client.get("/openapi.json")
        assert usual.json() == (await client.get("/api/v1/openapi.json")).json()
        with pytest.raises(AssertionError, match="asked"):
            await client.get("/apix")


@pytest.mark.parametrize(
    "body",
    [
        {"logLevel": "Q" * 50_000},
        {"trialGpuMemory": "Q" * 50_000},
        {"trainingService": {"platform": "Q" * 50_000}},
        {"config": "{}", "Q" * 50_000: 1},
        {"config": "{}", "secrets": {"Q" * 50_000: 1}},
    ],
)
async def test_large_value_is_cut_in_error(api: httpx.AsyncClient, body: dict[str, object]) -> None:
    answer = await api.post("/api/v1/experiments", json=body)
    assert answer.status_code == 400 and len(answer.text) < 10_000
    assert "characters omitted" in answer.json()["error"]


async def test_a_long_path_is_cut_too(api: httpx.AsyncClient) -> None:
    for path in (f"/api/v1/{'Q' * 30_000}", f"/api/v1/experiments?{'Q' * 30_000}=1"):
        answer = await api.get(path)
        assert answer.status_code in (400, 404) and len(answer.text) < 2000


def test_short_value_is_not_cut() -> None:
    assert domain.shortened("a" * 1000) == "a" * 1000
    assert str(domain.InvalidInput("field: " + "x" * 2000)).endswith("x" * 300)
