"""Unpacking what somebody sent: whole, or refused in a sentence, and never a byte outside the folder."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from code_directories import Tree, grow

from nni_manager.domain.errors import InvalidInput
from nni_manager.platform_kit.archive import pack, unpack

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

#: The package's own name for it is the function.
MODULE = importlib.import_module("nni_manager.platform_kit.archive.unpack")
Member = tuple[str, bytes, str]
FILE, LINK, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "target"
    folder.mkdir(parents=True)
    return folder


def archive(tmp_path: Path, *members: Member) -> Path:
    """Of (name, type, content or target)."""
    path = tmp_path / "made.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == FILE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                tar.addfile(member)
    return path


def outside(tmp_path: Path, target: Path) -> set[Path]:
    return {path for path in tmp_path.rglob("*") if target not in path.parents and path != target}


def test_what_was_packed_comes_out(tmp_path: Path, target: Path) -> None:
    tree: Tree = {"train.py": "print(1)\n", "lib/model.py": "x = 1\n", "empty": None, "lib/newest": "->model.py"}
    code = grow(tmp_path / "code", tree)
    (code / "train.py").chmod(0o755)
    unpack(pack(code, tmp_path / "out").path, target)
    assert (target / "train.py").read_text() == "print(1)\n" and os.access(target / "train.py", os.X_OK)
    assert not os.access(target / "lib" / "model.py", os.X_OK)
    assert (target / "empty").is_dir() and os.readlink(target / "lib" / "newest") == "model.py"
    assert {path.name for path in target.rglob("*")} == {"train.py", "lib", "model.py", "newest", "empty"}


@pytest.mark.parametrize(
    "members",
    [
        [("/evil", FILE, "x")],
        [("//evil", FILE, "x")],
        [("../evil", FILE, "x")],
        [("a", FOLDER, ""), ("a/../../evil", FILE, "x")],
        [("a", FOLDER, ""), ("a/..", FOLDER, "")],
        [(".", FOLDER, "")],
        [("nowhere/evil", FILE, "x")],
        [("a", LINK, ".."), ("a/evil", FILE, "x")],
        [("a", LINK, ".."), ("a", FOLDER, "")],
        [("a", FILE, "x"), ("a", FILE, "y")],
        [("a", LINK, "../../evil")],
        [("a", LINK, "/etc/passwd")],
        [("d", FOLDER, ""), ("d/up", LINK, ".."), ("b", LINK, "d/up/../..")],
        [("a", tarfile.LNKTYPE, "b")],
        [("a", tarfile.FIFOTYPE, "")],
        [("a", tarfile.CHRTYPE, "")],
        [("a", LINK, "")],
    ],
)
def test_nothing_leaves_the_folder(tmp_path: Path, target: Path, members: list[Member]) -> None:
    path = archive(tmp_path, *members)
    before = outside(tmp_path, target)
    with pytest.raises(InvalidInput, match="not as this manager packs it"):
        unpack(path, target)
    assert outside(tmp_path, target) == before


def test_a_link_may_come_before_what_it_leads_to(tmp_path: Path, target: Path) -> None:
    unpack(archive(tmp_path, ("a", LINK, "b"), ("b", FILE, "x")), target)
    assert (target / "a").read_text() == "x"


@pytest.mark.parametrize(
    "data", [b"", b"no gzip", gzip.compress(b"no tar" * 1000), gzip.compress(b"x" * 2000)[:-9]],
    ids=["empty", "no gzip", "no tar", "cut off"],
)  # fmt: skip
def test_what_is_no_archive(tmp_path: Path, target: Path, data: bytes) -> None:
    (tmp_path / "sent").write_bytes(data)
    with pytest.raises(InvalidInput, match="cannot be read"):
        unpack(tmp_path / "sent", target)


def test_one_that_ends_too_early(tmp_path: Path, target: Path) -> None:
    whole = archive(tmp_path, ("a", FILE, os.urandom(50_000).hex())).read_bytes()
    (tmp_path / "sent").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match="cannot be read"):
        unpack(tmp_path / "sent", target)


def test_too_many_files(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MOST_FILES", 3)
    with pytest.raises(InvalidInput, match="more than 3 files"):
        unpack(archive(tmp_path, *((f"f{number}", FILE, "") for number in range(4))), target)


def test_too_many_folders(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "FAR_TOO_MANY", 3)
    with pytest.raises(InvalidInput, match="more than 3 folders"):
        unpack(archive(tmp_path, *((f"f{number}", FOLDER, "") for number in range(9))), target)


def test_too_many_bytes(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MOST_BYTES", 2**20)
    members = [("a", FILE, "x" * 600_000), ("b", FILE, "x" * 600_000)]
    with pytest.raises(InvalidInput, match="more than 1 MB"):
        unpack(archive(tmp_path, *members), target)
    assert not (target / "b").exists()


def test_a_header_that_inflates_without_end(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long name is read whole before anybody can look at it."""
    monkeypatch.setattr(MODULE, "MOST_BYTES", 2**20)
    monkeypatch.setattr(MODULE, "_OVERHEAD_BYTES", 2**20)
    with tarfile.open(tmp_path / "sent", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("x" * 5_000_000))
    with pytest.raises(InvalidInput, match="more than 1 MB"):
        unpack(tmp_path / "sent", target)
