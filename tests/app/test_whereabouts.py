"""Clients find the daemon again when its socket or its pointer file were removed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from nni_manager.app.doors import Doors
from nni_manager.app.whereabouts import Whereabouts
from nni_manager.client.address import POINTER_FILE

pytestmark = pytest.mark.acceptance


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Place:
    """A runtime directory, which may move."""

    def __init__(self, data: Path, runtime: Path) -> None:
        self.data = data
        self.runtime = runtime
        self.doors = Doors(nothing)
        self.whereabouts = Whereabouts(self.doors, data, self.socket)

    def socket(self) -> Path:
        self.runtime.mkdir(exist_ok=True)
        return self.runtime / "control.sock"

    def told(self) -> str:
        return str(json.loads((self.data / POINTER_FILE).read_text())["socket"])

    async def answers(self) -> bool:
        transport = httpx.AsyncHTTPTransport(uds=self.told())
        async with httpx.AsyncClient(transport=transport, base_url="http://manager") as client:
            return (await client.get("/")).status_code == 204


@pytest.fixture
def runtime() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nni-") as folder:  # paths of sockets are short
        yield Path(folder)


@pytest.fixture
async def place(tmp_path: Path, runtime: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path, runtime / "run")
    async with place.whereabouts.kept():
        yield place
    await place.doors.close()
    assert os.listdir(tmp_path) == []
    assert not place.runtime.exists() or os.listdir(place.runtime) == []


async def test_nothing_is_touched_while_all_is_there(place: Place) -> None:
    before = [os.stat(path).st_ino for path in (place.told(), place.data / POINTER_FILE)]
    await place.whereabouts.look()
    assert [os.stat(path).st_ino for path in (place.told(), place.data / POINTER_FILE)] == before
    assert await place.answers()


async def test_the_socket_s_folder_is_removed(place: Place) -> None:
    shutil.rmtree(place.runtime)
    await place.whereabouts.look()
    assert await place.answers()
    assert [door.kind for door in place.doors.open] == ["control"]


async def test_another_socket_lies_in_its_place(place: Place) -> None:
    os.unlink(place.told())
    os.mkfifo(place.told())
    await place.whereabouts.look()
    assert await place.answers()


async def test_the_runtime_directory_is_another_one_now(place: Place, runtime: Path) -> None:
    shutil.rmtree(place.runtime)
    place.runtime = runtime / "elsewhere"
    await place.whereabouts.look()
    assert place.told() == str(runtime / "elsewhere" / "control.sock") and await place.answers()


async def test_the_pointer_file_is_removed(place: Place) -> None:
    (place.data / POINTER_FILE).unlink()
    await place.whereabouts.look()
    assert await place.answers()


async def test_what_cannot_be_made_yet_is_said_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(place.runtime)
    place.runtime.touch()
    for _ in range(2):
        await place.whereabouts.look()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["clients cannot find this daemon"]
    assert caplog.records[0].levelno == logging.ERROR
    place.runtime.unlink()
    await place.whereabouts.look()
    assert await place.answers()
