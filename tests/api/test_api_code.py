"""Code that is sent: stored whole and checked or not at all, and kept while an experiment runs it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from nni_manager.api import code
from nni_manager.api import code as code_routes
from nni_manager.api.application import create_application
from nni_manager.api.code import CodeFolders
from nni_manager.code_archive import pack
from nni_manager.platform_kit.tasks import ended
from nni_manager.scheduler.experiments import code as own_code_module
from tests.api.world import World
from tests.trial_runner.deep_tree import deep_tree_at

pytestmark = pytest.mark.unit

NOBODY = "0f" * 32


class Sent:
    """A code directory, packed."""

    def __init__(self, folder: Path) -> None:
        code = folder / "caller"
        (code / "tuners").mkdir(parents=True)
        (code / "trial.py").write_text("print(1)\n")
        (code / "tuners" / "mine.py").write_text("class Mine: pass\n")
        self.body = pack(code, folder / "packed").path.read_bytes()
        self.sha256 = hashlib.sha256(self.body).hexdigest()
        self.path = f"/api/v1/code/{self.sha256}"
        #: Its folder's name on the manager's machine.
        self.name = f"sent-{self.sha256}"


@pytest.fixture
def sent(tmp_path: Path) -> Sent:
    return Sent(tmp_path)


def new(world: World, sha256: str, **fields: object) -> dict[str, object]:
    config = world.config(trialCodeDirectory=".", **fields)
    return {"config": json.dumps(config), "file": "experiment.yml", "code": sha256}


def left(world: World) -> list[str]:
    return sorted(path.name for path in (world.data / "code").glob("*"))


def age(world: World, name: str) -> None:
    """Makes the last request for the code long ago."""
    os.utime(world.data / "code" / name, (1, 1))


def own_code(world: World, id_: str) -> Path:
    return world.data / id_ / "code" / "tree"


async def test_code_is_unpacked_once(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    assert (await api.get(sent.path)).status_code == 404
    answer = await api.put(sent.path, content=sent.body)
    assert answer.status_code == 201 and answer.json()["sha256"] == sent.sha256
    folder = Path(answer.json()["directory"])
    assert world.data in folder.parents and (folder / "trial.py").read_text() == "print(1)\n"
    assert (await api.get(sent.path)).json() == answer.json()
    again = await api.put(sent.path, content=sent.body)
    assert (again.status_code, again.json()) == (200, answer.json())
    assert left(world) == [sent.name]


async def test_same_code_sent_twice_at_once(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    answers = await asyncio.gather(*(api.put(sent.path, content=sent.body) for _ in range(4)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert left(world) == [sent.name]


@pytest.mark.parametrize("sha256", ["x", "0F" * 32, "0" * 63, "0" * 65, "..%2Findex.sqlite", "%00" * 64])
async def test_malformed_hash_is_not_found(world: World, api: httpx.AsyncClient, sha256: str) -> None:
    for answer in (await api.get(f"/api/v1/code/{sha256}"), await api.put(f"/api/v1/code/{sha256}", content=b"x")):
        assert answer.status_code == 404 and "error" in answer.json()
    assert left(world) == []


async def test_body_with_another_hash_is_refused(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    answer = await api.put(f"/api/v1/code/{NOBODY}", content=sent.body)
    assert answer.status_code == 400 and sent.sha256 in answer.json()["error"]
    assert left(world) == []


@pytest.mark.parametrize(
    "body", [b"", b"no archive", gzip.compress(b"no tar" * 500)], ids=["empty", "no archive", "no tar"]
)
async def test_invalid_archive_leaves_no_files(world: World, api: httpx.AsyncClient, body: bytes) -> None:
    answer = await api.put(f"/api/v1/code/{hashlib.sha256(body).hexdigest()}", content=body)
    assert answer.status_code == 400 and "cannot be read" in answer.json()["error"]
    assert left(world) == []


async def test_interrupted_upload_leaves_no_files(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    async def halves() -> AsyncIterator[bytes]:
        yield sent.body[: len(sent.body) // 2]
        raise ConnectionResetError

    assert (await api.put(sent.path, content=halves())).status_code == 503
    assert left(world) == []


async def test_code_upload_is_complete_or_absent_at_daemon_end(
    world: World, api: httpx.AsyncClient, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is cancelled before the tree is moved to its place; a parallel removal would begin with one file."""
    unpacked, go_on, moved, removed = (threading.Event() for _ in range(4))
    settle, remove = CodeFolders._settle, code._remove

    def moved_later(self: CodeFolders, made: Path, folder: Path) -> None:
        unpacked.set()
        assert go_on.wait(20)
        settle(self, made, folder)
        moved.set()

    def removed_slowly(folder: Path) -> None:
        (folder / "made" / "tree" / "trial.py").unlink(missing_ok=True)
        go_on.set()
        assert moved.wait(20)
        remove(folder)
        removed.set()

    monkeypatch.setattr(CodeFolders, "_settle", moved_later)
    monkeypatch.setattr(code, "_remove", removed_slowly)
    sending = asyncio.create_task(api.put(sent.path, content=sent.body))
    assert await asyncio.to_thread(unpacked.wait, 20)
    await ended(sending)
    go_on.set()
    assert await asyncio.to_thread(removed.wait, 20)
    assert left(world) == [sent.name]
    found = await asyncio.to_thread(CodeFolders(world.data).find, sent.sha256)
    assert found is not None and (found / "trial.py").exists()


async def test_code_has_its_own_body_limit(world: World, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_routes, "BODY_LIMIT", len(sent.body) + 10)
    async with world.calling(create_application(world.context)) as api:
        assert (await api.put(sent.path, content=sent.body)).status_code == 201
        answer = await api.put(f"/api/v1/code/{NOBODY}", content=bytes(len(sent.body) + 11))
        assert answer.status_code == 413 and "larger" in answer.json()["error"]

        async def unsaid() -> AsyncIterator[bytes]:
            yield bytes(len(sent.body) + 11)

        assert (await api.put(f"/api/v1/code/{NOBODY}", content=unsaid())).status_code == 413
    assert left(world) == [sent.name]


async def test_code_larger_than_8_mb_is_accepted(world: World, api: httpx.AsyncClient) -> None:
    body = os.urandom(9 * 2**20)
    answer = await api.put(f"/api/v1/code/{hashlib.sha256(body).hexdigest()}", content=body)
    assert answer.status_code == 400  # read, and found to be no archive


async def test_experiment_from_sent_code(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    await api.put(sent.path, content=sent.body)
    tuner = {"className": "mine.Mine", "codeDirectory": "tuners"}
    answer = await api.post("/api/v1/experiments", json=new(world, sent.sha256, tuner=tuner))
    assert answer.status_code == 201, answer.text
    folder = own_code(world, answer.json()["id"])
    config = (await api.get(f"/api/v1/experiments/{answer.json()['id']}")).json()["config"]
    assert config["trialCodeDirectory"] == str(folder)
    assert config["tuner"]["codeDirectory"] == f"{folder}/tuners"
    assert config["trainingService"]["trialCodeDirectory"] == str(folder)
    assert (folder / "trial.py").read_text() == "print(1)\n" and (folder / "tuners" / "mine.py").exists()


async def test_each_experiment_has_its_own_copy_of_code(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    """Also if the config names the folder itself: the trials' files do not affect the next experiment."""
    directory = (await api.put(sent.path, content=sent.body)).json()["directory"]
    here = {"config": json.dumps(world.config(trialCodeDirectory=directory))}
    ids = []
    for body in (new(world, sent.sha256), new(world, sent.sha256), here, here):
        ids.append((await api.post("/api/v1/experiments", json=body)).json()["id"])
        trial = own_code(world, ids[-1]) / "trial.py"
        assert trial.read_text() == "print(1)\n"
        trial.write_text("raise SystemExit(7)\n")
    assert (Path(directory) / "trial.py").read_text() == "print(1)\n"
    for id_ in ids:
        await api.post(f"/api/v1/experiments/{id_}/stop")
        assert own_code(world, id_).exists(), "it may be resumed"
        assert (await api.delete(f"/api/v1/experiments/{id_}")).status_code == 204
        assert not (world.data / id_).exists()
    assert left(world) == [sent.name]


async def test_code_moves_with_the_experiment_folder(
    world: World, api: httpx.AsyncClient, sent: Sent, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await api.put(sent.path, content=sent.body)
    tuner = {"className": "mine.Mine", "codeDirectory": "tuners"}
    id_ = (await api.post("/api/v1/experiments", json=new(world, sent.sha256, tuner=tuner))).json()["id"]
    await api.post(f"/api/v1/experiments/{id_}/stop")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.move(world.data / id_, elsewhere / id_)
    body = {"workingDirectory": str(elsewhere)}
    assert (await api.post(f"/api/v1/experiments/{id_}/resume", json=body)).status_code == 200
    config = (await api.get(f"/api/v1/experiments/{id_}")).json()["config"]
    folder = elsewhere / id_ / "code" / "tree"
    assert config["trialCodeDirectory"] == config["trainingService"]["trialCodeDirectory"] == str(folder)
    assert config["tuner"]["codeDirectory"] == f"{folder}/tuners"


async def test_refused_experiment_keeps_sent_code(
    world: World, api: httpx.AsyncClient, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the copy stays, and a full disk is reported as such."""
    await api.put(sent.path, content=sent.body)

    def refuse(source: str, target: str, **_: bool) -> None:
        raise OSError(28, "No space left on device", target)

    with monkeypatch.context() as patch:
        patch.setattr(own_code_module.shutil, "copy", refuse)
        answer = await api.post("/api/v1/experiments", json=new(world, sent.sha256))
    assert answer.status_code == 400 and "cannot be created (No space left on device)" in answer.json()["error"]
    assert not list(world.data.glob("*/code/tree")) and await world.commands.entries() == []
    CodeFolders(world.data).sweep()
    assert left(world) == [sent.name]
    age(world, sent.name)
    CodeFolders(world.data).sweep()
    assert left(world) == []


async def test_unused_code_is_removed_when_an_experiment_is_deleted(
    world: World, api: httpx.AsyncClient, sent: Sent
) -> None:
    await api.put(sent.path, content=sent.body)
    for id_ in ("first", "second"):
        await world.add(id_)
    assert (await api.delete("/api/v1/experiments/first")).status_code == 204
    assert left(world) == [sent.name]
    age(world, sent.name)
    assert (await api.delete("/api/v1/experiments/second")).status_code == 204
    assert left(world) == []


async def test_half_removed_code_is_not_found(
    world: World, api: httpx.AsyncClient, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As left by a daemon that was killed, or by a disk error."""
    await api.put(sent.path, content=sent.body)

    def half(path: str) -> list[str]:
        next(Path(path).rglob("trial.py")).unlink()
        return [f"{path} cannot be removed: Input/output error"]

    age(world, sent.name)
    with monkeypatch.context() as patch:
        patch.setattr(code.removal, "remove", half)
        CodeFolders(world.data).sweep()
    assert (await api.get(sent.path)).status_code == 404
    assert (await api.put(sent.path, content=sent.body)).status_code == 201
    assert left(world) == [sent.name], "the rest goes with the next sweep"


@pytest.mark.parametrize("levels", [101, 1500])
async def test_an_upload_of_deep_folders_is_refused_and_leaves_nothing(
    world: World, api: httpx.AsyncClient, levels: int
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for level in range(1, levels + 1):
            member = tarfile.TarInfo("/".join(["d"] * level))
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
    body = buffer.getvalue()
    name = hashlib.sha256(body).hexdigest()
    answer = await api.put(f"/api/v1/code/{name}", content=body)
    assert answer.status_code == 400 and "more than 100 deep" in answer.json()["error"]
    assert left(world) == []


@pytest.mark.parametrize("name", [".incoming-old", ".removed-1"])
async def test_deep_tree_of_earlier_version_is_removed(world: World, api: httpx.AsyncClient, name: str) -> None:
    code = world.data / "code"
    code.mkdir()
    with deep_tree_at(code / name, 1500):
        age(world, name)
        CodeFolders(world.data).sweep()
        assert left(world) == []


async def test_unused_code_is_removed_when_other_code_arrives(
    world: World, api: httpx.AsyncClient, sent: Sent, tmp_path: Path
) -> None:
    await api.put(sent.path, content=sent.body)
    (broken_off := world.data / "code" / ".incoming-old").mkdir()
    os.utime(broken_off, (1, 1))
    other = Sent(tmp_path / "other")
    assert other.sha256 == sent.sha256, "the same files are the same code"
    (tmp_path / "third" / "caller").mkdir(parents=True)
    third = pack(tmp_path / "third" / "caller", tmp_path / "third" / "packed").path.read_bytes()
    age(world, sent.name)
    name = hashlib.sha256(third).hexdigest()
    assert (await api.put(f"/api/v1/code/{name}", content=third)).status_code == 201
    assert left(world) == [f"sent-{name}"]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"code": NOBODY}, f"cannot find code {NOBODY}"),
        ({"code": "../.."}, "must be the SHA-256"),
        ({"code": 7}, "code:"),
    ],
)
async def test_unknown_code_is_not_found(world: World, api: httpx.AsyncClient, fields: dict, word: str) -> None:
    answer = await api.post("/api/v1/experiments", json={**new(world, NOBODY), **fields})
    assert answer.status_code == 400 and word in answer.json()["error"]


async def test_code_leaves_no_room_for_a_directory(world: World, api: httpx.AsyncClient, sent: Sent) -> None:
    await api.put(sent.path, content=sent.body)
    answer = await api.post("/api/v1/experiments", json={**new(world, sent.sha256), "directory": str(world.code)})
    assert answer.status_code == 400 and "directory" in answer.json()["error"]
