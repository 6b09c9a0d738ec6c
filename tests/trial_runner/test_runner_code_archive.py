"""Code archives: what belongs into the folder gets there, and nothing gets anywhere else."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from nni_manager.cli.main import nni_manager
from nni_manager.platform_kit.payload import runner_archive
from trial_runner import protocol
from trial_runner.keeper.code import copying
from trial_runner.keeper.serving.requests import Refusal
from trial_runner.runner import preparation
from trial_runner.wire.code_archive import BadArchive, DamagedArchive, unpack

pytestmark = pytest.mark.unit

Entry = tuple[str, bytes, str]
FILE, LINK, HARD, FOLDER, FIFO, DEVICE = (
    tarfile.REGTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "code"


def test_files_folders_and_links_that_stay_are_unpacked(folder: Path) -> None:
    entries = [
        ("train.py", FILE, "x"),
        ("lib", FOLDER, ""),
        ("lib/run.sh", FILE, "y"),
        ("lib/.hidden", FILE, "h"),
        ("lib/up.py", LINK, "../train.py"),
        ("here", LINK, "."),
        ("dangling", LINK, "lib/nothing"),
    ]
    _unpack(folder, entries)
    assert (folder / "train.py").read_text() == (folder / "lib/up.py").read_text() == "x"
    assert (folder / "lib/.hidden").read_text() == "h"
    assert os.readlink(folder / "here") == "."
    assert os.readlink(folder / "dangling") == "lib/nothing"


def test_permissions_are_kept_but_not_those_of_other_users(folder: Path) -> None:
    _unpack(folder, [("run.sh", FILE, "")], mode=0o6755)
    assert (folder / "run.sh").stat().st_mode & 0o7777 == 0o755


def test_archive_with_other_hash_is_refused_unpacked(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "code.tar.gz"
    path.write_bytes(_archive([("train.py", FILE, "x")], 0o644))
    with pytest.raises(DamagedArchive, match=r"code\.tar\.gz is not the one that the manager wrote"):
        unpack(str(path), str(folder), sha256="0" * 64)
    assert not folder.exists()
    unpack(str(path), str(folder), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert (folder / "train.py").read_text() == "x"


def test_container_refuses_swapped_code(tmp_path: Path) -> None:
    system, unpacked, path = tmp_path / "system", tmp_path / "code", tmp_path / "code.tar.gz"
    path.write_bytes(_archive([("train.py", FILE, "evil")], 0o644))
    system.mkdir()
    told = {protocol.ENV_CODE_ARCHIVE: str(path), protocol.ENV_CODE_SHA256: "0" * 64}
    with pytest.raises(DamagedArchive):
        preparation.place_stored(told, str(system), str(unpacked))
    assert not unpacked.exists() and not list(tmp_path.rglob("train.py"))


def test_keeper_refuses_swapped_code_and_requests_it_again(tmp_path: Path) -> None:
    path = tmp_path / "code.tar.gz"
    path.write_bytes(_archive([("train.py", FILE, "evil")], 0o644))
    with pytest.raises(Refusal, match="not the one that the manager wrote") as refused:
        copying._unpack(str(path), "0" * 64, lambda done: None)
    assert refused.value.kind == protocol.UNAVAILABLE
    assert not path.exists() and not (tmp_path / "code").exists()


def test_an_earlier_unpacking_is_replaced(folder: Path) -> None:
    _unpack(folder, [("a", FILE, "1"), ("b", LINK, "a")])
    _unpack(folder, [("a", FILE, "2"), ("b", FILE, "3")])
    assert (folder / "a").read_text() == "2"
    assert (folder / "b").read_text() == "3"
    assert not (folder / "b").is_symlink()


_ESCAPES: dict[str, list[Entry]] = {
    "absolute path": [("/tmp/nni-escaped", FILE, "")],
    "parent": [("../escaped", FILE, "")],
    "parent in the middle": [("a/../../escaped", FILE, "")],
    "absolute link": [("link", LINK, "/etc/passwd")],
    "link to the parent": [("link", LINK, "..")],
    "link that climbs": [("a/link", LINK, "../../escaped")],
    "file behind a link": [("out", LINK, "../"), ("out/escaped", FILE, "")],
    "file behind a link that stays": [("a", FOLDER, ""), ("b", LINK, "a"), ("b/x", FILE, "")],
    "link behind a link": [("a", LINK, "."), ("a/x", LINK, "..")],
    "link whose way changes later": [("x", LINK, "y/.."), ("y", LINK, ".")],
    "chain of links": [("d/e", FOLDER, ""), ("l", LINK, "d/e"), ("m", LINK, "l/../../..")],
    "hard link out": [("hard", HARD, "../../outside")],
    "absolute hard link": [("hard", HARD, "/etc/passwd")],
    "hard link to a link": [("link", LINK, "a"), ("hard", HARD, "link")],
    "hard link to a folder": [("a", FOLDER, ""), ("hard", HARD, "a")],
    "named pipe": [("pipe", FIFO, "")],
    "device": [("null", DEVICE, "")],
    "the folder itself as a link": [(".", LINK, "..")],
    "a file over a folder": [("a", FOLDER, ""), ("a", FILE, "")],
}


@pytest.mark.parametrize("escape", _ESCAPES)
def test_members_outside_the_folder_are_refused(folder: Path, escape: str) -> None:
    outside = folder.parent.parent / "outside"
    outside.write_text("untouched")
    before = _tree(folder.parent.parent, folder)
    with pytest.raises(BadArchive, match="archive"):
        _unpack(folder, _ESCAPES[escape])
    assert _tree(folder.parent.parent, folder) == before
    assert outside.read_text() == "untouched"
    assert not Path("/tmp/nni-escaped").exists()


@pytest.mark.parametrize("keep", [0, 10, 100, 5000])
def test_a_damaged_archive_is_said_to_be(folder: Path, tmp_path: Path, keep: int) -> None:
    (tmp_path / "code.tar.gz").write_bytes(_archive([("a", FILE, os.urandom(20000).hex())], 0o644)[:keep])
    with pytest.raises(BadArchive, match="damaged"):
        unpack(str(tmp_path / "code.tar.gz"), str(folder))


def test_html_page_is_reported_as_damaged_archive(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "code.tar.gz").write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(BadArchive, match="damaged"):
        unpack(str(tmp_path / "code.tar.gz"), str(folder))


def test_the_runner_s_archive_is_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runner.pyz"
    with pytest.raises(SystemExit) as ended:
        nni_manager(["runner", "build", "--output", str(path)])
    assert ended.value.code == 0
    assert str(path) in capsys.readouterr().out
    assert path.read_bytes() == runner_archive() == runner_archive()
    assert os.access(path, os.X_OK)
    assert len(runner_archive()) < 700_000, "it must fit into one object of Kubernetes, encoded"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        nni_manager(["runner", "build", "--output", str(tmp_path / "missing" / "runner.pyz")])
    assert ended.value.code == 2
    assert "choose another file" in capsys.readouterr().err


def _unpack(folder: Path, entries: list[Entry], mode: int = 0o644) -> None:
    path = folder.parent.parent / "code.tar.gz"
    path.write_bytes(_archive(entries, mode))
    try:
        unpack(str(path), str(folder))
    finally:
        path.unlink()


def _archive(entries: list[Entry], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, mode
            data = content.encode() if kind == FILE else b""
            entry.linkname = content if kind in (LINK, HARD) else ""
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _tree(root: Path, without: Path) -> set[str]:
    return {str(path) for path in root.rglob("*") if without != path and without not in path.parents} - {
        str(without.parent)
    }
