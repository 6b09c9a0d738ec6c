"""Folders of jobs that are copied through a shell: what is sent, what is read, and in which order."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nni_manager.domain.errors import PlatformUnavailable
from nni_manager.machines import mirrored_folders
from nni_manager.machines.mirrored_folders import MirroredFolders
from nni_manager.machines.shell import LocalShell
from tests.waiting import until_async
from trial_runner import protocol

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


class Both:
    """The copy and the original, as two folders of this machine."""

    def __init__(self, folder: Path) -> None:
        self.here, self.there = folder / "here", folder / "there"
        self.here.mkdir()
        self.news: list[str] = []
        self.folders = self.anew()

    def anew(self) -> MirroredFolders:
        """Another instance, as after a restart."""
        self.folders = MirroredFolders(LocalShell(), self.here, str(self.there), every_s=0.05, on_news=self.news.append)
        return self.folders

    def write(self, name: str, text: str) -> None:
        """Adds to a file of the original."""
        path = self.there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def copied(self, name: str) -> str:
        path = self.here / name
        return path.read_text() if path.exists() else ""


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A write beyond `size` bytes is cut off, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest_asyncio.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    both = Both(tmp_path)
    yield both
    await both.folders.leave()


async def test_new_bytes_of_many_jobs_come_in_one_reading(both: Both) -> None:
    for name in ("a", "b"):
        both.folders.follow(f"job {name}", name)
        both.write(f"{name}/outbox/main.jsonl", f"{name}1\n")
        both.write(f"{name}/stdout", "printed\n")
    assert not await both.folders.read()
    assert (both.copied("a/outbox/main.jsonl"), both.copied("b/stdout")) == ("a1\n", "printed\n")
    assert both.news == ["job a", "job b"]
    both.write("a/outbox/main.jsonl", "a2\n")
    await both.folders.read()
    assert both.copied("a/outbox/main.jsonl") == "a1\na2\n"
    assert both.news == ["job a", "job b", "job a"]


async def test_restart_continues_at_the_end_of_the_copy(both: Both) -> None:
    both.folders.follow("job", "a")
    both.write("a/outbox/main.jsonl", "1\n")
    await both.folders.read()
    both.write("a/outbox/main.jsonl", "2\n")
    both.anew().follow("job", "a")
    await both.folders.read()
    assert both.copied("a/outbox/main.jsonl") == "1\n2\n"


async def test_piece_cut_off_by_full_disk_is_written_again(both: Both) -> None:
    both.folders.follow("job", "a")
    both.write("a/outbox/main.jsonl", "x" * 300_000 + "\n")
    with largest_file(200_000), pytest.raises(OSError):
        await both.folders.read()
    both.write("a/outbox/main.jsonl", "last\n")
    await both.folders.read()
    assert both.copied("a/outbox/main.jsonl") == "x" * 300_000 + "\nlast\n"


async def test_stored_bytes_are_news_although_a_later_piece_fails(both: Both) -> None:
    for name in ("a", "b"):
        both.folders.follow(f"job {name}", name)
        both.write(f"{name}/outbox/main.jsonl", "1\n")
    (both.here / "b").write_text("not a folder")
    with pytest.raises(OSError):
        await both.folders.read()
    assert both.news == ["job a"]


async def test_stored_bytes_are_news_although_the_reading_is_cancelled(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = mirrored_folders.MirroredFolders._store_all

    def slowly(*arguments: Any) -> None:
        storing.set()
        time.sleep(0.2)
        store(*arguments)

    storing = threading.Event()
    monkeypatch.setattr(MirroredFolders, "_store_all", slowly)
    both.write("a/stdout", "ten letters")
    both.folders.follow("job-a", "a")
    reading = asyncio.create_task(both.folders.read())
    await until_async(storing.is_set)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert both.copied("a/stdout") == "ten letters" and both.news == ["job-a"]


@pytest.mark.parametrize("found", ["", "1\n", "1\n2\nre"])
async def test_copy_of_another_length_becomes_like_the_original(both: Both, found: str) -> None:
    both.folders.follow("job", "a")
    both.write("a/outbox/main.jsonl", "1\n2\n")
    await both.folders.read()
    (both.here / "a/outbox/main.jsonl").write_text(found)
    both.write("a/outbox/main.jsonl", "3\n")
    for _ in range(2):
        await both.folders.read()
    assert both.copied("a/outbox/main.jsonl") == "1\n2\n3\n"


async def test_end_is_copied_after_everything_before_it(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored_folders, "_MOST_BYTES", 1000)
    both.folders.follow("job", "a")
    both.write("a/outbox/main.jsonl", "x" * 2500)
    both.write("a/exit.json", json.dumps({"exit_code": 0}))
    seen = []
    while await both.folders.read():
        seen.append((len(both.copied("a/outbox/main.jsonl")), bool(both.copied("a/exit.json"))))
    assert [end for _, end in seen] == [False] * len(seen) and len(seen) >= 2
    assert both.copied("a/outbox/main.jsonl") == "x" * 2500
    assert json.loads(both.copied("a/exit.json")) == {"exit_code": 0}


async def test_registration_is_replaced(both: Both) -> None:
    both.folders.follow("job", "a")
    both.write("a/runner.json", '{"container": "11111111"}')
    await both.folders.read()
    (both.there / "a/runner.json").write_text('{"container": "222222222"}')
    await both.folders.read()
    assert both.copied("a/runner.json") == '{"container": "222222222"}'


async def test_links_and_hidden_files_are_not_read(both: Both, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    both.folders.follow("job", "a")
    both.write("a/outbox/.hidden", "hidden")
    os.symlink(tmp_path / "secret", both.there / "a/stdout")
    os.mkfifo(both.there / "a/stderr")
    await both.folders.read()
    assert both.copied("a/stdout") == "" and not (both.here / "a/outbox").exists()


async def test_empty_log_is_copied_and_is_no_news(both: Both) -> None:
    both.folders.follow("job", "a")
    both.write("a/stdout", "")
    await both.folders.read()
    assert (both.here / "a/stdout").read_bytes() == b"" and both.news == []


async def test_files_are_sent_whole_and_shared_ones_once(both: Both) -> None:
    (both.here / "a").mkdir()
    (both.here / "a/run.sh").write_text("first")
    (both.here / "code.tar.gz").write_bytes(b"packed")
    await both.folders.send(["a/run.sh"], ["code.tar.gz"])
    inode = (both.there / "code.tar.gz").stat().st_ino
    (both.here / "a/run.sh").write_text("second")
    await both.anew().send(["a/run.sh"], ["code.tar.gz"])
    assert (both.there / "a/run.sh").read_text() == "second"
    assert (both.there / "code.tar.gz").stat().st_ino == inode
    assert (both.there / "a").stat().st_mode & 0o077 == 0
    await both.folders.remove(["code-*", "code.*", "absent"])
    assert not (both.there / "code.tar.gz").exists()


async def test_reading_repeats_while_jobs_are_followed(both: Both) -> None:
    both.folders.enter()
    both.folders.follow("job", "a")
    both.write("a/outbox/main.jsonl", "1\n")
    await until_async(lambda: both.copied("a/outbox/main.jsonl") == "1\n")
    both.write("a/outbox/main.jsonl", "2\n")
    await until_async(lambda: both.copied("a/outbox/main.jsonl") == "1\n2\n")


async def test_unusable_folder_is_unavailable(both: Both) -> None:
    (both.here / "a").mkdir()
    (both.here / "a/run.sh").write_text("text")
    both.there.write_text("a file")
    with pytest.raises(PlatformUnavailable, match="jobs' folder cannot be used"):
        await both.folders.send(["a/run.sh"])


async def test_logs_of_both_sides_have_the_same_names() -> None:
    text = (Path(protocol.__file__).parent / "folder_channel.py").read_text()
    named = [*protocol.LOG_FILES, protocol.RUNNER_FILE, protocol.EXIT_FILE, protocol.METRICS_FILE]
    assert [name for name in named if f'"{name}"' not in text] == []
