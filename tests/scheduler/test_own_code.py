"""Each experiment's copy of uploaded code: equal in content, links and modes, and separate."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nni_manager.code_archive import NotWanted, always, pack, packing, unpack
from nni_manager.config import experiment_file
from nni_manager.platform_kit import registry
from nni_manager.platform_kit.contract import Capabilities
from nni_manager.scheduler.experiments import experiment_folder
from nni_manager.scheduler.experiments.code import CodeArchive
from nni_manager.scheduler.experiments.submission import Submission
from nni_manager.store.folder import Folder

pytestmark = pytest.mark.unit


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """As it is unpacked where it came to."""
    code = tmp_path / "caller"
    (code / "deep" / "er").mkdir(parents=True)
    (code / "empty").mkdir()
    (code / ".nniignore").write_text("left\n")
    (code / "deep" / "er" / "größe \udcff.txt").write_text("7")
    (code / "trial.sh").write_text("echo 1")
    (code / "trial.sh").chmod(0o755)
    (code / "link").symlink_to("deep/er")
    (code / "deep" / "file").symlink_to("../trial.sh")
    (sent := tmp_path / "sent").mkdir()
    unpack(pack(code, tmp_path).path, sent)
    return sent


@pytest.fixture
def submission(sent: Path, tmp_path: Path) -> Submission:
    text = (
        "{searchSpace: {x: {_type: choice, _value: [1]}}, trialCommand: echo, tuner: {name: Random},"
        " trialConcurrency: 1, trainingService: {platform: local}}"
    )
    spec = experiment_file.load(text, directory=sent, working_directory=tmp_path / "experiments")
    return Submission(spec=spec, sent_code=sent)


def make(submission: Submission, is_wanted: Callable[[], bool] = always) -> Folder:
    folder = Folder(Path(submission.spec.working_directory) / submission.id)
    experiment_folder.make(folder, submission, None, is_wanted, data_dir=folder.path.parent, now_ms=1, owner="")
    return folder


def listed(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Names, kinds and permissions, and what is inside."""
    for path in sorted(folder.rglob("*")):
        inside = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        yield str(path.relative_to(folder)), path.lstat().st_mode, inside


def test_copy_of_uploaded_code_is_equal_and_separate(submission: Submission, sent: Path) -> None:
    before = list(listed(sent))
    folder = make(submission)
    assert list(listed(folder.own_code)) == before and len(before) == 8
    for path in folder.own_code.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_text("changed in place")
    assert list(listed(sent)) == before
    folder.remove()
    assert not folder.path.exists() and list(listed(sent)) == before


class Shipping:
    """An adapter that sends the code."""

    @staticmethod
    def capabilities_for(_config: object) -> Capabilities:
        return Capabilities(watches=True, reads_files=False, ships_code=True)


def test_remote_jobs_get_the_uploaded_code(
    submission: Submission, sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "adapter_of", lambda _: Shipping)
    (archive,) = make(submission).code.glob("*.tar.gz")
    assert archive.name == pack(tmp_path / "caller", tmp_path / "again").path.name


def test_unsent_code_stays_in_place(submission: Submission, sent: Path) -> None:
    folder = make(replace(submission, sent_code=None))
    assert not folder.code.exists()


def test_a_copy_that_is_not_wanted_any_more_ends(submission: Submission) -> None:
    answers = iter([True, True, True, False])  # in which order, and what comes first, is the file system's affair
    with pytest.raises(NotWanted):
        make(submission, lambda: next(answers))
    copied = Folder(Path(submission.spec.working_directory) / submission.id).own_code
    assert 0 < len(list(copied.rglob("*"))) < 8


async def test_packing_ends_with_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code := tmp_path / "code").mkdir()
    (code / "large").touch()
    os.truncate(code / "large", 280 * 2**20)
    begun, loop, write_tar = asyncio.Event(), asyncio.get_running_loop(), packing.write_tar

    def observed(*arguments: Any) -> str:
        loop.call_soon_threadsafe(begun.set)
        return write_tar(*arguments)

    monkeypatch.setattr(packing, "write_tar", observed)
    archive = CodeArchive(code, tmp_path / "packed")
    waiting = asyncio.create_task(archive.path())
    await begun.wait()
    await archive.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert list((tmp_path / "packed").iterdir()) == [], "no thread writes there any more"


async def test_packing_continues_after_submission_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each try started over, code that takes longer than a submission's limit would never be packed."""
    (code := tmp_path / "code").mkdir()
    (code / "trial.py").write_text("print(1)")
    begun, go_on, loop, write_tar = asyncio.Event(), threading.Event(), asyncio.get_running_loop(), packing.write_tar
    times: list[int] = []

    def slow(*arguments: Any) -> str:
        times.append(1)
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(20)
        return write_tar(*arguments)

    monkeypatch.setattr(packing, "write_tar", slow)
    archive = CodeArchive(code, tmp_path / "packed")
    first = asyncio.create_task(archive.path())
    await begun.wait()
    first.cancel()
    loop.call_later(0.2, go_on.set)
    async with asyncio.timeout(20):
        await asyncio.wait({first})
        assert (await archive.path()).exists() and times == [1]
    await archive.close()
