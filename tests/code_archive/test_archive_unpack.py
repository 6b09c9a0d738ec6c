"""Unpacking an upload: whole, or refused in a sentence, and never a byte outside the folder."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from code_directories import Tree, grow

from nni_manager.code_archive import pack, unpack
from nni_manager.domain.errors import InvalidInput
from trial_runner.wire import code_archive

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

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


def test_packed_tree_is_unpacked_unchanged(tmp_path: Path, target: Path) -> None:
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
    with pytest.raises(InvalidInput, match="was not packed by this manager"):
        unpack(path, target)
    assert outside(tmp_path, target) == before


def test_link_may_precede_its_target(tmp_path: Path, target: Path) -> None:
    unpack(archive(tmp_path, ("a", LINK, "b"), ("b", FILE, "x")), target)
    assert (target / "a").read_text() == "x"


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"no tar" * 1000), gzip.compress(b"x" * 2000)[:-9]],
    ids=["empty", "no gzip", "no tar", "cut off"],
)
def test_other_files_than_archives_are_refused(tmp_path: Path, target: Path, data: bytes) -> None:
    (tmp_path / "sent").write_bytes(data)
    with pytest.raises(InvalidInput, match="cannot be read"):
        unpack(tmp_path / "sent", target)


def test_truncated_archive_is_refused(tmp_path: Path, target: Path) -> None:
    whole = archive(tmp_path, ("a", FILE, os.urandom(50_000).hex())).read_bytes()
    (tmp_path / "sent").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match="cannot be read"):
        unpack(tmp_path / "sent", target)


def test_too_many_files(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MOST_FILES", 3)
    with pytest.raises(InvalidInput, match="more than 3 files"):
        unpack(archive(tmp_path, *((f"f{number}", FILE, "") for number in range(4))), target)


def test_too_many_folders(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MOST_FOLDERS", 3)
    with pytest.raises(InvalidInput, match="more than 3 folders"):
        unpack(archive(tmp_path, *((f"f{number}", FOLDER, "") for number in range(9))), target)


def test_too_many_bytes(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MOST_BYTES", 2**20)
    members = [("a", FILE, "x" * 600_000), ("b", FILE, "x" * 600_000)]
    with pytest.raises(InvalidInput, match="more than 1 MB"):
        unpack(archive(tmp_path, *members), target)
    assert not (target / "b").exists()


def test_inflated_size_is_limited(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that are thrown away count, too."""
    monkeypatch.setattr(code_archive, "MOST_BYTES", 2**20)
    monkeypatch.setattr(code_archive, "_OVERHEAD_BYTES", 2**20)
    comments = tar_header("c", b"g", 60_000) + b"11 path=ab\n".ljust(-(-60_000 // 512) * 512, b"\0")
    with pytest.raises(InvalidInput, match="more than 1 MB"):
        unpack(sent(tmp_path, comments * 100), target)


# ------------------------------------------------------------------------------------------------ made to harm


def tar_header(name: str, kind: bytes, size: int | bytes, *, magic: bytes = b"ustar\x0000") -> bytes:
    """One block; `size` as bytes stands there as it is."""
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    block = bytearray(512)
    for start, value in ((0, name.encode()), (100, b"0000644\0"), (124, field), (156, kind), (257, magic)):
        block[start : start + len(value)] = value
    block[148:156] = b"%06o\0 " % (sum(block) + 8 * 32)
    return bytes(block)


def record(name: str, value: bytes) -> bytes:
    """Of a PAX header."""
    rest = b" " + name.encode() + b"=" + value + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def pax(*records: bytes) -> bytes:
    data = b"".join(records)
    return tar_header("x", b"x", len(data)) + data.ljust(-(-len(data) // 512) * 512, b"\0")


def sent(tmp_path: Path, data: bytes) -> Path:
    (tmp_path / "sent").write_bytes(gzip.compress(data, 1))
    return tmp_path / "sent"


FILE_HEADER = tar_header("a", b"0", 0)
BAD = {
    "a long name of PAX": pax(record("path", b"x" * 300)) + FILE_HEADER,
    "a long folder": pax(record("path", b"x" * 300)) + tar_header("a", b"5", 0),
    "a path longer than any": pax(record("path", b"x" * 5_000)) + FILE_HEADER,
    "a long name of GNU": tar_header("n", b"L", 300) + b"x" * 300 + b"\0" * 212 + FILE_HEADER,
    "a name that is announced": tar_header("n", b"L", 340_000_000),
    "a PAX header that is announced": tar_header("n", b"x", 340_000_000),
    "a global header that is announced": tar_header("n", b"g", 340_000_000),
    "a name of zeros": tar_header("n", b"L", 512) + b"\0" * 512 + FILE_HEADER,
    "a NUL in a name": pax(record("path", b"a\0b")) + FILE_HEADER,
    "a name that is not text": pax(record("path", b"\xff\xfe" * 200)) + FILE_HEADER,
    "a record without a length": tar_header("x", b"x", 512) + b"path=a\n".ljust(512, b"x") + FILE_HEADER,
    "a record of no length": tar_header("x", b"x", 512) + b"0 path=a\n".ljust(512, b"\0") + FILE_HEADER,
    "a record longer than all": tar_header("x", b"x", 512) + b"999 path=a\n".ljust(512, b"\0") + FILE_HEADER,
    "a record's length of many digits": tar_header("x", b"x", 5120) + b"9" * 5120 + FILE_HEADER,
    "a size of PAX of many digits": pax(record("size", b"9" * 5_000)) + FILE_HEADER,
    "a negative size of PAX": pax(record("size", b"-1")) + FILE_HEADER,
    "a size of PAX that is none": pax(record("size", b"1e9")) + FILE_HEADER,
    "a sparse file of GNU": tar_header("a", b"S", 512, magic=b"ustar  \0") + b"\0" * 512,
    "a sparse map of PAX": pax(
        record("GNU.sparse.major", b"1"), record("GNU.sparse.minor", b"0"), record("GNU.sparse.realsize", b"9")
    )
    + tar_header("a", b"0", 512)
    + b"999999999999\n" * 30
    + b"\0" * 122,
    "a huge size": tar_header("a", b"0", b"\x80" + b"\xff" * 11),
    "a negative size": tar_header("a", b"0", b"\xff" * 12),
    "a size that is none": tar_header("a", b"0", b"12x4567890\0 "),
    "a size with underscores": tar_header("a", b"0", b"1_0_0_0_0_0\0"),
    "a file longer than the archive": tar_header("a", b"0", 10_000) + b"x" * 512,
    "half a header": FILE_HEADER + FILE_HEADER[:100],
    "a wrong sum": FILE_HEADER[:148] + b"000001\0 " + FILE_HEADER[156:],
    "a sum that is none": FILE_HEADER[:148] + b"\xff" * 8 + FILE_HEADER[156:],
    "an unknown kind": tar_header("a", b"Z", 0),
    "no name": tar_header("", b"0", 0),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_hostile_archive_is_refused_within_little_memory(tmp_path: Path, target: Path, data: bytes) -> None:
    path = sent(tmp_path, data)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="the code archive"):
            unpack(path, target)
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()


def test_many_extension_headers_are_skipped(tmp_path: Path, target: Path) -> None:
    unpack(sent(tmp_path, pax(record("comment", b"x")) * 3_000 + FILE_HEADER), target)
    assert (target / "a").is_file()


def test_a_small_upload_with_a_huge_name_costs_no_memory(tmp_path: Path, target: Path) -> None:
    """As it was found: 340 MB of zeros are 340 KB."""
    with gzip.open(tmp_path / "sent", "wb", 1) as file:
        file.write(tar_header("n", b"L", 340_000_000))
        for _ in range(20):
            file.write(b"x" * 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="longer than 64 KiB"):
            unpack(tmp_path / "sent", target)
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()


def test_tarfile_reads_announced_names_into_memory(tmp_path: Path, target: Path) -> None:
    """The reason for a reader of our own; the filter is asked when the name is in memory."""
    size = 20 * 2**20
    path = sent(tmp_path, tar_header("n", b"L", size) + b"x" * size)
    tracemalloc.start()
    try:
        with suppress(tarfile.TarError), tarfile.open(path) as tar:
            tar.extractall(target, filter="data")
        assert tracemalloc.get_traced_memory()[1] > size
    finally:
        tracemalloc.stop()


def test_damage_that_keeps_the_form_is_noticed(tmp_path: Path, target: Path) -> None:
    data = bytearray(gzip.compress(FILE_HEADER + b"\0" * 1024, 0))
    data[10 + 5 + 512 + 700] ^= 1  # in the end of the tar file: the check sum alone tells
    (tmp_path / "sent").write_bytes(data)
    with pytest.raises(InvalidInput, match="cannot be read"):
        unpack(tmp_path / "sent", target)


def test_a_chain_of_links_without_end(tmp_path: Path, target: Path) -> None:
    links = [(f"l{number}", LINK, f"l{number + 1}") for number in range(1_990)]
    with pytest.raises(InvalidInput, match="too many others"):
        unpack(archive(tmp_path, *links), target)


def test_a_link_to_a_name_that_no_file_can_have(tmp_path: Path, target: Path) -> None:
    with pytest.raises(InvalidInput, match="an invalid file name"):
        unpack(archive(tmp_path, ("a", LINK, "b/" * 3_000)), target)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_other_programs_are_unpacked(tmp_path: Path, target: Path, format: int) -> None:
    folders, files = ["d", f"d/{'e' * 90}"], [f"d/{'e' * 90}/{'f' * 60}"]
    target_of_link = "d"
    if format != tarfile.USTAR_FORMAT:
        folders.append(f"d/{'e' * 90}/{'g' * 60}")
        files += [f"{folders[-1]}/{'h' * 90}", "d/\u00e4\udcff"]
        target_of_link = files[-2]
    with tarfile.open(tmp_path / "sent", "w:gz", format=format, errors="surrogateescape") as tar:
        for name in folders:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
        for name in files:
            member = tarfile.TarInfo(name)
            member.size = 700
            tar.addfile(member, io.BytesIO(b"x" * 700))
        member = tarfile.TarInfo("link")
        member.type, member.linkname = tarfile.SYMTYPE, target_of_link
        tar.addfile(member)
    unpack(tmp_path / "sent", target)
    found = {os.path.relpath(path, target) for path in target.rglob("*")}
    assert found == {*folders, *files, "link"} and os.readlink(target / "link") == target_of_link
    assert all((target / name).read_bytes() == b"x" * 700 for name in files)


def test_empty_archive_is_unpacked(tmp_path: Path, target: Path) -> None:
    unpack(archive(tmp_path), target)
    assert list(target.iterdir()) == []
