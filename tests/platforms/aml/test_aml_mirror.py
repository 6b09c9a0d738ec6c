"""The copy of what runners leave: files that are held open, and containers that take another's place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from nni_manager.platforms.aml.assets import Blobs
from nni_manager.platforms.aml.mirror import HeldFile, Mirror
from tests.platforms.aml.aml_world import GOOD, AmlWorld, GivenTokens
from trial_runner import protocol

pytestmark = pytest.mark.unit
MOST = 100_000
_ONE, _TWO = "1111111111111111", "2222222222222222"


class Copy:
    """`there`: the attempt's blobs; `here`: what was copied."""

    def __init__(self, there: Path, here: Path, mirror: Mirror) -> None:
        self.there, self.here, self.mirror = there, here, mirror

    def put(self, name: str, text: str) -> None:
        (self.there / name).parent.mkdir(parents=True, exist_ok=True)
        (self.there / name).write_text(text)

    def greet(self, container: str) -> None:
        self.put(protocol.RUNNER_FILE, json.dumps({"container": container}))
        self.put(f"pieces/{container}/stdout/0", "")

    def text(self, name: str) -> str:
        return (self.here / name).read_text()


@pytest_asyncio.fixture
async def copy(tmp_path: Path) -> AsyncIterator[Copy]:
    async with AmlWorld(tmp_path) as world:
        blobs = Blobs(f"{world.workspace.address}/azureml-blobstore", GivenTokens(GOOD))
        mirror = Mirror(blobs, MOST)
        mirror.follow("job", "p", tmp_path / "copy")
        yield Copy(world.workspace.blobs.folder / "p", tmp_path / "copy", mirror)
        await blobs.close()


async def test_pieces_are_read_until_the_whole_is_there(copy: Copy) -> None:
    copy.greet(_ONE)
    copy.put(f"pieces/{_ONE}/stdout/0", "one\n")
    copy.put(f"pieces/{_ONE}/outbox/main.jsonl/0", "1\n")
    copy.put(f"pieces/{_ONE}/model.bin/0", "what no runner copies")
    assert await copy.mirror.sync("job") and not await copy.mirror.sync("job")
    assert (copy.text("stdout"), copy.text(protocol.MAIN_OUTBOX)) == ("one\n", "1\n")
    assert not (copy.here / "model.bin").exists()
    copy.put("stdout", "one\ntwo\n")
    assert await copy.mirror.sync("job")
    (copy.there / f"pieces/{_ONE}/stdout/0").unlink()
    assert not await copy.mirror.sync("job")
    assert copy.text("stdout") == "one\ntwo\n"


async def test_log_copy_is_limited_and_result_copy_is_complete(copy: Copy) -> None:
    copy.greet(_ONE)
    long = "x" * (3 * MOST)
    copy.put("stdout", long[:MOST])
    copy.put(protocol.MAIN_OUTBOX, long)
    assert await copy.mirror.sync("job")
    assert copy.text("stdout") == long[:MOST] and copy.text(protocol.MAIN_OUTBOX) == long
    copy.put("stdout", long)
    assert await copy.mirror.sync("job") and not await copy.mirror.sync("job")
    copy.put("stdout", long + "y")
    await copy.mirror.sync("job")
    found = copy.text("stdout")
    assert found.startswith(long[:MOST] + "\n[nni_manager: this log exceeds maxLogSize; the complete log is p/stdout")
    assert len(found) < MOST + 200 and found.count("nni_manager") == 1


async def test_files_of_a_new_container_are_read_from_the_start(copy: Copy) -> None:
    """Its greeting is as long, and what was held open when the node was taken away is nowhere."""
    copy.greet(_ONE)
    copy.put(f"pieces/{_ONE}/stdout/0", "first, and longer\n")
    await copy.mirror.sync("job")
    copy.greet(_TWO)
    copy.put(f"pieces/{_TWO}/stdout/0", "second\n")
    assert await copy.mirror.sync("job")
    assert copy.text("stdout") == "second\n"
    assert json.loads(copy.text(protocol.RUNNER_FILE))["container"] == _TWO
    assert not await copy.mirror.sync("job"), "pieces of the first are left there"


def test_the_byte_behind_a_piece_is_in_the_next_one() -> None:
    full = protocol.PIECE_BYTES
    file = HeldFile(name="stdout", whole=3, pieces={0: ("a", full), 1: ("b", 5)})
    assert file.size == full + 5
    assert [file.source(start) for start in (0, 3, full - 1, full, full + 4, full + 5)] == [
        ("stdout", 0),
        ("a", 3),
        ("a", full - 1),
        ("b", 0),
        ("b", 4),
        None,
    ]


def test_a_piece_that_the_list_does_not_show_yet_is_waited_for() -> None:
    file = HeldFile(name="stdout", whole=None, pieces={1: ("b", 5)})
    assert file.source(0) is None


class _Empty:
    """Storage with nothing on it. `mirror` forgets a job in the moment that another one is looked at."""

    mirror: Mirror
    looked: asyncio.Event

    async def sizes(self, prefix: str) -> dict[str, int]:
        self.mirror.forget("b")
        self.looked.set()
        return {}


async def test_job_forgotten_during_check_does_not_end_checks(tmp_path: Path) -> None:
    """That would be a fault of ours, which only a person's resume gets over."""
    storage = _Empty()
    mirror = storage.mirror = Mirror(cast(Blobs, storage), MOST)
    storage.looked = asyncio.Event()
    for name in ("a", "b"):
        mirror.follow(name, name, tmp_path / name)
    running = asyncio.create_task(mirror.run())
    for _ in range(2):
        await storage.looked.wait()
        storage.looked.clear()
        await asyncio.sleep(0)
        mirror.hurry("a")
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
