"""Log files: byte ranges, unknown logs, and paths that lead elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from nni_manager.api.application import create_application
from nni_manager.store.folder import Folder
from tests.api.world import World, raw_get

pytestmark = pytest.mark.unit

LOGS = "/api/v1/experiments/seeded/trials/good1/logs"


@pytest.fixture
async def folder(world: World) -> Folder:
    return await world.add("seeded")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("query", "text", "offset"),
    [
        ("", "0123456789", 0),
        ("?offset=3", "3456789", 3),
        ("?offset=3&limit=2", "34", 3),
        ("?offset=-4", "6789", 6),
        ("?offset=-4&limit=1", "6", 6),
        ("?offset=-400", "0123456789", 0),
        ("?offset=400", "", 10),
        ("?limit=0", "", 0),
        ("?attempt=1", "0123456789", 0),
    ],
)
async def test_range_headers(api: httpx.AsyncClient, query: str, text: str, offset: int) -> None:
    answer = await api.get(f"{LOGS}/stdout{query}")
    assert answer.status_code == 200 and answer.text == text
    assert (answer.headers["X-Offset"], answer.headers["X-Size"]) == (str(offset), "10")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"  # a trial may print HTML


async def test_a_large_log_comes_in_parts(world: World, folder: Folder) -> None:
    data = os.urandom(1_000_000)
    (folder.trials / "good1" / "stdout").write_bytes(data)
    answer = await raw_get(create_application(world.context), f"{LOGS}/stdout?offset=10")
    assert len(answer.parts) > 3 and answer.body == data[10:]


@pytest.mark.usefixtures("folder")
async def test_logs_of_the_manager(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/experiments/seeded/logs/nnimanager.log")
    assert answer.text == "one\ntwo\n"
    missing = await api.get("/api/v1/experiments/seeded/logs/dispatcher.log")
    assert missing.status_code == 404 and "dispatcher.log" in missing.json()["error"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "path",
    [
        f"{LOGS}/parameter.cfg",
        f"{LOGS}/trial.log",
        f"{LOGS}/stdout?attempt=2",
        f"{LOGS}/..%2Fstdout",
        "/api/v1/experiments/seeded/trials/waits/logs/stdout",
        "/api/v1/experiments/seeded/trials/nobdy/logs/stdout",
        "/api/v1/experiments/seeded/logs/stdout",
        "/api/v1/experiments/seeded/logs/nni.sqlite",
    ],
)
async def test_unknown_log_is_not_found(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code == 404 and answer.json()["error"]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
async def test_links_and_folders_in_place_of_a_log_are_not_read(
    api: httpx.AsyncClient, folder: Folder, kind: str
) -> None:
    log = folder.trials / "good1" / "stdout"
    log.unlink()
    if kind == "link":
        secret = folder.path / "secret"
        secret.write_text("s3cret")
        log.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(log)
    else:
        log.mkdir()
    answer = await api.get(f"{LOGS}/stdout")
    assert answer.status_code == 404 and "s3cret" not in answer.text


@pytest.mark.parametrize("way", ["attempt", "trials"])
async def test_a_folder_exchanged_for_a_link_serves_nothing(
    api: httpx.AsyncClient, folder: Folder, tmp_path: Path, way: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "good1").mkdir(parents=True)
    (elsewhere / "good1" / "stdout").write_text("s3cret")
    place, aim = (folder.trials / "good1", elsewhere / "good1") if way == "attempt" else (folder.trials, elsewhere)
    place.rename(tmp_path / "before")
    place.symlink_to(aim)
    for path in (f"{LOGS}/stdout", "/experiments/seeded/api/v1/nni/trial-file/good1/stdout"):
        answer = await api.get(path)
        assert answer.status_code == 404 and "s3cret" not in answer.text


ATTEMPTS = [
    "..",
    "../..",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fdata",
    "....//",
    "good1%00",
    "good1%0a",
    "good1/../good1",
    "/etc/passwd",
    "%252e%252e",
    "..\\..",
    "~",
    "*",
    "good1;",
    "g\u00f3od1",
    "a" * 5000,
]
PLACES = [
    "/api/v1/experiments/{}",
    "/api/v1/experiments/{}/trials",
    "/api/v1/experiments/{}/metrics",
    "/api/v1/experiments/{}/events",
    "/api/v1/experiments/{}/logs/nnimanager.log",
    "/api/v1/experiments/seeded/logs/{}",
    "/api/v1/experiments/seeded/trials/{}",
    "/api/v1/experiments/seeded/trials/{}/logs/stdout",
    "/api/v1/experiments/seeded/trials/good1/logs/{}",
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("place", PLACES)
async def test_no_path_leads_out_of_its_folder(world: World, place: str) -> None:
    application = create_application(world.context)
    for attempt in ATTEMPTS:
        answer = await raw_get(application, place.format(attempt))
        assert answer.status in (404, 405), (attempt, answer.body)
        assert json.loads(answer.body)["error"], attempt


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("action", ["stop", "resume", "import", "trials/{}/kill"])
async def test_no_command_takes_a_path_for_an_id(api: httpx.AsyncClient, action: str) -> None:
    for attempt in ("..", "%2e%2e%2fseeded", "a" * 33, "seeded%00"):
        base = "seeded" if "{}" in action else attempt
        answer = await api.post(f"/api/v1/experiments/{base}/{action.format(attempt)}", json=[])
        assert answer.status_code in (404, 405), answer.text
