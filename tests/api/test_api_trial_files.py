"""The files of a trial, listed and read: those on this machine, those at its training service, its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import httpx
import pytest

from nni_manager.domain.errors import NotFound, PlatformUnavailable
from nni_manager.domain.job import JobHandle
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Capabilities
from tests.api.services import EXPERIMENTS, Acted, act, add_trial, create, shown
from tests.api.world import World

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]


class Far(Acted):
    capabilities = Capabilities(watches=True, reads_files=True)
    files: ClassVar[dict[str, bytes]] = {}

    async def list_files(self, handle: JobHandle) -> Sequence[str]:
        self._may_raise()
        return list(self.files)

    async def read_file(self, handle: JobHandle, name: str, offset: int, limit: int) -> bytes:
        self._may_raise()
        if name not in self.files:
            raise NotFound(f"cannot find {name}")
        return self.files[name][offset : offset + limit]


@pytest.fixture
async def files(api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a running trial's files: `model/weights` lies at the service, `notes` and a checkpoint here."""
    act(monkeypatch)
    monkeypatch.setattr(registry, "adapter_of", lambda _platform: Far)
    monkeypatch.setattr(Far, "files", {"model/weights": b"0123456789", "notes": b"there"})
    id_ = await create(api, world)
    trial_id = await add_trial(api, id_)
    await shown(api, f"{id_}/trials/{trial_id}", lambda one: one["status"] == "RUNNING")
    trials = world.data / id_ / "trials"
    for name, text in ((f"{trial_id}/notes", "here"), (f"{trial_id}-checkpoint/epoch", "7"), ("other", "no")):
        (trials / name).parent.mkdir(parents=True, exist_ok=True)
        (trials / name).write_text(text)
    (trials / trial_id / "link").symlink_to("/etc/passwd")
    return f"{EXPERIMENTS}/{id_}/trials/{trial_id}/files"


async def test_files_here_and_at_the_service_are_listed(api: httpx.AsyncClient, files: str) -> None:
    answer = (await api.get(files)).json()
    places = {file["name"]: file["place"] for file in answer["files"]}
    assert places.items() >= {"notes": "here", "checkpoint/epoch": "here", "model/weights": "service"}.items()
    assert (answer["attempt"], answer["why"]) == (1, "")


async def test_files_are_read_in_stretches(api: httpx.AsyncClient, files: str) -> None:
    for path, text in (
        ("notes", "here"),
        ("checkpoint/epoch", "7"),
        ("model/weights?offset=4&limit=3", "456"),
        ("model/weights?offset=10", ""),
    ):
        answer = await api.get(f"{files}/{path}")
        assert (answer.status_code, answer.text) == (200, text), path
        assert answer.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "name", ["nothing", "../other", "%2e%2e/other", "checkpoint/../../other", "link", "/etc/passwd"]
)
async def test_what_is_no_file_of_the_trial_is_not_read(api: httpx.AsyncClient, files: str, name: str) -> None:
    assert (await api.get(f"{files}/{name}")).status_code in (400, 404)


async def test_files_here_are_listed_while_the_service_is_away(api: httpx.AsyncClient, files: str) -> None:
    Acted.trouble["local"] = PlatformUnavailable("no route to host")
    answer = (await api.get(files)).json()
    assert "notes" in [file["name"] for file in answer["files"]] and "no route to host" in answer["why"]


async def test_an_attempt_that_there_is_not_is_refused(api: httpx.AsyncClient, files: str) -> None:
    assert (await api.get(f"{files}?attempt=2")).status_code == 404
