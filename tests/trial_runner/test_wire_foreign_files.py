"""Files that others wrote: no link on the way, regular files only, never waiting, bounded."""

import os
import socket
from pathlib import Path

import pytest

from trial_runner.wire import foreign_files
from trial_runner.wire.foreign_files import MOST_LEVELS, MOST_NAMES, NotRegular, OpenFolder

pytestmark = [pytest.mark.unit, pytest.mark.timeout(10)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "attempt"
    (folder / "outbox").mkdir(parents=True)
    (folder / "outbox" / "1.jsonl").write_bytes(b"0123456789")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "outbox").mkdir(parents=True)
    (elsewhere / "outbox" / "1.jsonl").write_text("secret")
    return folder


def test_a_stretch_of_a_file_is_read(folder: Path) -> None:
    assert foreign_files.read(str(folder), "outbox/1.jsonl", 2, 3) == b"234"
    assert foreign_files.read(str(folder), "outbox/1.jsonl", -3, 100) == b"789"
    assert foreign_files.read(str(folder), "outbox/1.jsonl", -30, 2) == b"01"
    assert foreign_files.size(str(folder), "./outbox//1.jsonl") == 10
    assert foreign_files.tail(str(folder), "outbox/none", 3) == b""


def test_open_folder_ignores_later_renames(folder: Path, tmp_path: Path) -> None:
    with OpenFolder(str(folder)) as opened:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "elsewhere")
        assert foreign_files.read(opened, "outbox/1.jsonl", 0, 3) == b"012"
        assert foreign_files.listing(opened, "outbox").files == ["outbox/1.jsonl"]
        assert foreign_files.make_folder(opened, "new/er") == ["new", "new/er"]
        foreign_files.write_whole(opened, "new/file", b"x")
        with pytest.raises(NotRegular):
            foreign_files.open_file(opened, "outbox")
    assert (tmp_path / "moved" / "new" / "file").read_bytes() == b"x"
    assert not (tmp_path / "elsewhere" / "new").exists()
    with pytest.raises(OSError):
        OpenFolder(str(folder))


def test_no_link_is_followed_wherever_it_is(folder: Path, tmp_path: Path) -> None:
    (folder / "file").symlink_to(folder / "outbox" / "1.jsonl")
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "exchanged").symlink_to(tmp_path / "elsewhere")
    for place, name in [
        (folder, "file"),
        (folder, "away/outbox/1.jsonl"),
        (tmp_path / "exchanged", "outbox/1.jsonl"),
    ]:
        with pytest.raises(OSError):
            foreign_files.read(str(place), name, 0, 10)
        with pytest.raises(OSError):
            foreign_files.size(str(place), name)
        with pytest.raises(OSError):
            foreign_files.write_whole(str(place), name.replace("file", "file/x"), b"")
        assert foreign_files.listing(str(place), name).files == []
    assert foreign_files.listing(str(tmp_path / "exchanged"), "outbox").files == []


def test_special_files_are_refused_without_blocking(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        for name in ("pipe", "socket", "outbox"):
            for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND):
                with pytest.raises(NotRegular):
                    foreign_files.open_file(str(folder), name, flags)
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(NotRegular):
        foreign_files.open_file(str(folder), "pipe", os.O_WRONLY)
    os.close(reader)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "outbox/../outbox/1.jsonl", "a\0b", "\ud800", "."])
def test_name_outside_folder_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(OSError, match="not a path below"):
        foreign_files.open_file(str(folder), name)


def test_listing_omits_links_pipes_and_hidden_names(folder: Path) -> None:
    outbox = folder / "outbox"
    (outbox / "b" / "c").mkdir(parents=True)
    (outbox / "b" / "c" / "2.jsonl").touch()
    (outbox / "link").symlink_to("1.jsonl")
    (outbox / "links").symlink_to("b")
    os.mkfifo(outbox / "pipe")
    (outbox / ".draft").touch()
    (outbox / ".hidden").mkdir()
    found = foreign_files.listing(str(folder), "outbox")
    assert found.files == ["outbox/1.jsonl", "outbox/b/c/2.jsonl"]
    assert found.folders == ["outbox", "outbox/b", "outbox/b/c"]
    assert found.is_complete
    assert foreign_files.listing(str(folder), "none") == ([], [], True)


def test_a_listing_ends_at_a_depth_and_at_a_number(folder: Path) -> None:
    deepest = folder / "outbox"
    for level in range(3 * MOST_LEVELS):
        (deepest / f"{level}.jsonl").touch()
        deepest = deepest / "d"
        deepest.mkdir()
    found = foreign_files.listing(str(folder), "outbox")
    assert (len(found.folders), len(found.files), found.is_complete) == (MOST_LEVELS + 1, MOST_LEVELS + 2, False)
    (folder / "many").mkdir()
    for number in range(MOST_NAMES + 1):
        os.link(folder / "outbox" / "1.jsonl", folder / "many" / str(number))
    found = foreign_files.listing(str(folder), "many")
    assert (len(found.files), found.is_complete) == (MOST_NAMES, False)


def test_file_is_written_atomically_over_anything(folder: Path, tmp_path: Path) -> None:
    aim = tmp_path / "elsewhere" / "outbox" / "1.jsonl"
    for obstacle in ("exit.json", "exit.json.tmp"):
        for put in (os.mkfifo, lambda path: path.symlink_to(aim), lambda path: (path / "a" / "b").mkdir(parents=True)):
            put(folder / obstacle)
            foreign_files.write_whole(str(folder), "exit.json", b"{}")
            assert not (folder / "exit.json").is_symlink()
            assert (folder / "exit.json").read_bytes() == b"{}"
            assert not os.path.lexists(folder / "exit.json.tmp")
            (folder / "exit.json").unlink()
    assert aim.read_text() == "secret"


def test_folders_are_made_but_not_through_links(folder: Path, tmp_path: Path) -> None:
    foreign_files.make_folder(str(folder), "a/b")
    foreign_files.make_folder(str(folder), "a/b")
    assert (folder / "a" / "b").is_dir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("link", "link/b", "outbox/1.jsonl"):
        with pytest.raises(OSError):
            foreign_files.make_folder(str(folder), name)
    assert not (tmp_path / "elsewhere" / "b").exists()


def test_no_descriptor_is_left_open(folder: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    os.mkfifo(folder / "pipe")
    for name in ("pipe", "none", "outbox/none", "none/none"):
        with pytest.raises(OSError):
            foreign_files.open_file(str(folder), name)
    foreign_files.read(str(folder), "outbox/1.jsonl", 0, 1)
    foreign_files.listing(str(folder), "outbox")
    foreign_files.write_whole(str(folder), "file", b"")
    foreign_files.make_folder(str(folder), "a/b")
    assert set(os.listdir("/proc/self/fd")) <= before
