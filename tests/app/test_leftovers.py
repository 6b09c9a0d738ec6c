"""Experiments that a killed daemon had begun to make or to delete."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nni_manager.app import index_file
from nni_manager.domain.experiment import ExperimentStatus
from nni_manager.store import migrate
from nni_manager.store.database import Database
from nni_manager.store.folder import Folder
from nni_manager.store.index import index
from nni_manager.store.index.index import Entry
from tests.trial_runner.deep_tree import make_deep_tree, place_for_deep_trees
from trial_runner.wire import removal

pytestmark = pytest.mark.unit


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    migrate.migrate(tmp_path / "index.sqlite", "index")
    database = Database(tmp_path / "index.sqlite")
    yield database
    await database.close()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "half")
    folder.create(tmp_path)
    folder.database.touch()
    return folder


@pytest.fixture
def unused_code(tmp_path: Path) -> Path:
    """Code that a client sent long ago."""
    code = tmp_path / "code" / f"sent-{'0f' * 32}"
    code.mkdir(parents=True)
    os.utime(code, (1, 1))
    return code


async def left(database: Database) -> list[str]:
    return [id_ for id_, _ in await database.read(index.leftovers)]


async def test_half_made_experiment_is_removed_with_folder_and_code(
    tmp_path: Path, database: Database, folder: Folder, unused_code: Path
) -> None:
    await database.write(lambda c: index.set_leftover(c, "half", folder))
    await index_file.finish_half_done(database, tmp_path)
    assert not folder.path.exists() and not await asyncio.to_thread(unused_code.exists)
    assert await left(database) == []
    await index_file.finish_half_done(database, tmp_path)


async def test_half_made_experiment_without_folder_is_removed(tmp_path: Path, database: Database) -> None:
    await database.write(lambda c: index.set_leftover(c, "none", Folder(tmp_path / "none")))
    await index_file.finish_half_done(database, tmp_path)
    assert await left(database) == []


async def test_listed_experiment_stays(tmp_path: Path, database: Database, folder: Folder) -> None:
    entry = Entry(
        id="half",
        folder=folder,
        name=None,
        platform="local",
        status=ExperimentStatus.STOPPED,
        created_ms=1,
        ended_ms=2,
        is_open=False,
    )
    await database.write(lambda c: index.set_leftover(c, "half", folder))
    await database.write(lambda c: index.put(c, entry))
    await index_file.finish_half_done(database, tmp_path)
    assert folder.database.exists()


async def test_failed_removal_is_retried_at_next_start(
    tmp_path: Path, database: Database, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.write(lambda c: index.set_leftover(c, "half", folder))
    with monkeypatch.context() as patch:
        patch.setattr(removal, "remove", lambda path: [f"{path} stays"])
        await index_file.finish_half_done(database, tmp_path)
    assert folder.database.exists() and await left(database) == ["half"]
    await index_file.finish_half_done(database, tmp_path)
    assert not folder.path.exists() and await left(database) == []


async def test_a_deep_tree_that_a_trial_left_goes_too(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with place_for_deep_trees() as place:
        folder = Folder(place / "half")
        folder.create(place)
        (folder.trials / "abcde").mkdir()
        make_deep_tree(folder.trials / "abcde", 1200)
        folder.mark_deletion(is_wanted=True)
        await database.write(lambda c: index.set_leftover(c, "half", folder))
        await index_file.finish_half_done(database, place)
        assert not folder.path.exists() and await left(database) == []
    assert caplog.text.count("cannot be removed") == 0


@pytest.mark.parametrize("error", [RecursionError("too deep"), OSError("odd"), KeyError("odd")])
async def test_nothing_about_a_leftover_ends_the_daemon(
    tmp_path: Path,
    database: Database,
    folder: Folder,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Folder(tmp_path / "other")
    other.create(tmp_path)
    for id_, one in (("half", folder), ("other", other)):
        await database.write(lambda c, id_=id_, one=one: index.set_leftover(c, id_, one))
    removed = Folder.remove

    def remove(self: Folder) -> list[str]:
        if self == folder:
            raise error
        return removed(self)

    monkeypatch.setattr(Folder, "remove", remove)
    await index_file.finish_half_done(database, tmp_path)
    assert await left(database) == ["half"] and not other.path.exists()
    assert str(error) in caplog.text and str(folder.path) in caplog.text


async def test_note_does_not_remove_trials(tmp_path: Path, database: Database, folder: Folder) -> None:
    """The note may be older than the folder; only a deletion that the folder itself has is carried out."""
    (folder.trials / "abcde").mkdir()
    await database.write(lambda c: index.set_leftover(c, "half", folder))
    await index_file.finish_half_done(database, tmp_path)
    assert folder.trials.exists() and await left(database) == []
    folder.mark_deletion(is_wanted=True)
    await database.write(lambda c: index.set_leftover(c, "half", folder))
    await index_file.finish_half_done(database, tmp_path)
    assert not folder.path.exists()


async def test_kept_folder_elsewhere_is_listed(tmp_path: Path, database: Database) -> None:
    folder = Folder(tmp_path / "elsewhere" / "half")
    folder.create(tmp_path)
    (folder.trials / "abcde").mkdir()
    await database.write(lambda c: index.set_leftover(c, "half", folder))
    await index_file.finish_half_done(database, tmp_path)
    (entry,) = await database.read(index.all_entries)
    assert (entry.id, entry.status, entry.folder) == ("half", ExperimentStatus.STOPPED, folder)
    assert str(folder.path) in entry.trouble
