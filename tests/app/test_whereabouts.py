"""Clients find the daemon again when its socket or its pointer file were removed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from nni_manager.app.daemon_address import DaemonAddress
from nni_manager.app.listening.listeners import Listeners
from nni_manager.client.address import POINTER_FILE
from nni_manager.store.folder import Ownership
from trial_runner.wire import foreign_files

pytestmark = pytest.mark.acceptance


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Place:
    """A runtime directory, which may move."""

    def __init__(self, data: Path, runtime: Path) -> None:
        self.data = data
        self.runtime = runtime
        self.listeners = Listeners(nothing)
        self.lock = Ownership(data / "daemon.lock", "the data directory")
        self.homeless = asyncio.Event()
        self.daemon_address = DaemonAddress(self.listeners, data, self.lock, self.socket, self.homeless.set)

    def socket(self) -> Path:
        self.runtime.mkdir(exist_ok=True)
        return self.runtime / "control.sock"

    def told(self) -> str:
        return str(json.loads((self.data / POINTER_FILE).read_text())["socket"])

    async def answers(self) -> bool:
        transport = httpx.AsyncHTTPTransport(uds=self.told())
        async with httpx.AsyncClient(transport=transport, base_url="http://manager") as client:
            return (await client.get("/")).status_code == 204


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*")}


@pytest.fixture
def runtime() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nni-") as folder:  # paths of sockets are short
        yield Path(folder)


@pytest.fixture
async def place(tmp_path: Path, runtime: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path, runtime / "run")
    async with place.daemon_address.kept():
        yield place
    await place.listeners.close()
    place.lock.release()
    assert names_in(tmp_path) <= {"daemon.lock"}
    assert names_in(place.runtime) == set()


async def test_complete_state_is_not_touched(place: Place) -> None:
    before = [os.stat(path).st_ino for path in (place.told(), place.data / POINTER_FILE)]
    await place.daemon_address.look()
    assert [os.stat(path).st_ino for path in (place.told(), place.data / POINTER_FILE)] == before
    assert await place.answers()


async def test_unwritable_file_at_start_is_written_later(
    tmp_path: Path, runtime: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, runtime / "run")
    (tmp_path / POINTER_FILE).write_text('{"socket": "/nowhere", "pid": 1, "version": "0.1.0"}')  # a killed daemon's
    write_all = foreign_files.write_all
    monkeypatch.setattr(foreign_files, "write_all", Mock(side_effect=OSError(28, "No space left on device")))
    async with place.daemon_address.kept():
        await place.daemon_address.look()
        (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert said.startswith("clients cannot find this daemon: [Errno 28] No space left")
        monkeypatch.setattr(foreign_files, "write_all", write_all)
        await place.daemon_address.look()
        assert await place.answers()
    await place.listeners.close()
    place.lock.release()


async def test_the_socket_s_folder_is_removed(place: Place) -> None:
    shutil.rmtree(place.runtime)
    await place.daemon_address.look()
    assert await place.answers()
    assert [listener.kind for listener in place.listeners.open] == ["control"]


async def test_another_socket_lies_in_its_place(place: Place) -> None:
    os.unlink(place.told())
    os.mkfifo(place.told())
    await place.daemon_address.look()
    assert await place.answers()


async def test_the_runtime_directory_is_another_one_now(place: Place, runtime: Path) -> None:
    shutil.rmtree(place.runtime)
    place.runtime = runtime / "elsewhere"
    await place.daemon_address.look()
    assert place.told() == str(runtime / "elsewhere" / "control.sock") and await place.answers()


async def test_the_pointer_file_is_removed(place: Place) -> None:
    (place.data / POINTER_FILE).unlink()
    await place.daemon_address.look()
    assert await place.answers()


async def test_unrestorable_address_is_logged_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(place.runtime)
    place.runtime.touch()
    for _ in range(2):
        await place.daemon_address.look()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["clients cannot find this daemon"]
    assert caplog.records[0].levelno == logging.ERROR
    place.runtime.unlink()
    await place.daemon_address.look()
    assert await place.answers()


@pytest.mark.parametrize("fate", ["deleted", "moved", "exchanged"])
async def test_missing_data_directory_ends_daemon_and_keeps_others(place: Place, fate: str) -> None:
    elsewhere = place.data.with_name(f"{place.data.name}-elsewhere")
    await place.daemon_address.look()
    assert not place.homeless.is_set()
    place.data.rename(elsewhere)
    if fate == "deleted":
        shutil.rmtree(elsewhere)
    if fate == "exchanged":
        place.data.mkdir()
        (place.data / "daemon.lock").touch()
    os.unlink(place.socket())
    await place.daemon_address.look()
    assert place.homeless.is_set()
    assert names_in(place.runtime) == set(), "the socket is another daemon's now, perhaps"
    assert POINTER_FILE not in names_in(place.data)
