"""What an archive holds, and that the same content is the same archive."""

from __future__ import annotations

import gzip
import os
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest
from code_directories import Tree, content, grow, members, packed_files, packed_folders

from nni_manager.code_archive import Archive, NotWanted, pack

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

PROJECT: Tree = {"train.py": "print(1)\n", "lib/model.py": "x = 1\n", "empty": None, "lib/newest": "->model.py"}


def test_files_folders_and_links(tmp_path: Path) -> None:
    archive = pack(grow(tmp_path / "code", PROJECT), tmp_path / "out")
    assert packed_files(archive.path) == {"train.py", "lib/model.py", "lib/newest"}
    assert packed_folders(archive.path) == {"lib", "empty"}
    assert content(archive.path, "lib/model.py") == b"x = 1\n"
    assert members(archive.path)["lib/newest"].linkname == "model.py"
    assert archive == Archive(path=tmp_path / "out" / f"{archive.hash}.tar.gz", hash=archive.hash, files=3, bytes=15)
    assert len(archive.hash) == 64 and int(archive.hash, 16)


def test_an_empty_directory(tmp_path: Path) -> None:
    archive = pack(grow(tmp_path / "code", {}), tmp_path / "out")
    assert (archive.files, archive.bytes, members(archive.path)) == (0, 0, {})


def test_dot_files_travel(tmp_path: Path) -> None:
    tree: Tree = {".env": "", ".config/a": "", "..a": "", ".nniignore": "", ".git/HEAD": ""}
    assert packed_files(pack(grow(tmp_path / "code", tree), tmp_path / "out").path) == tree.keys()


NAMES = ["größe.py", "数据/模型.py", "a b\tc\n.py", "-rf", "e\u0301", "x" * 255, f"{'d' * 200}/{'e' * 200}/f"]


@pytest.mark.parametrize("name", [*NAMES, os.fsdecode(b"\xff\xe9.py"), os.fsdecode(b"d\xff/\xfe")])
def test_names_of_every_kind(name: str, tmp_path: Path) -> None:
    archive = pack(grow(tmp_path / "code", {name: "here"}), tmp_path / "out")
    assert packed_files(archive.path) == {name}
    with tarfile.open(archive.path) as tar:
        tar.extractall(tmp_path / "there", filter="data")
    assert (tmp_path / "there" / name).read_text() == "here"


def test_undecodable_link_targets(tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff")
    archive = pack(grow(tmp_path / "code", {odd: "", "link": f"->{odd}"}), tmp_path / "out")
    assert members(archive.path)["link"].linkname == odd


def test_the_x_bit_is_kept_and_all_else_evened_out(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"run.sh": "", "data": "", "lib/a": ""})
    (code / "run.sh").chmod(0o700)
    (code / "data").chmod(0o606)
    (code / "lib").chmod(0o770)
    found = members(pack(code, tmp_path / "out").path)
    assert {name: member.mode for name, member in found.items()} == {
        "run.sh": 0o755,
        "data": 0o644,
        "lib": 0o755,
        "lib/a": 0o644,
    }
    assert {(member.uid, member.gid, member.uname, member.gname) for member in found.values()} == {(0, 0, "", "")}
    assert {member.mtime for member in found.values()} == {315_532_800}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    one = grow(tmp_path / "one", PROJECT)
    other = grow(tmp_path / "elsewhere" / "other", dict(reversed(list(PROJECT.items()))))
    (other / "train.py").chmod(0o600)
    os.utime(other / "train.py", (1, 1))
    first, second = pack(one, tmp_path / "out1"), pack(other, tmp_path / "out2")
    assert first.hash == second.hash
    assert first.path.read_bytes() == second.path.read_bytes()


def test_the_order_is_that_of_the_names_bytes(tmp_path: Path) -> None:
    names = [f"{number * 7919 % 100:02}" for number in range(100)] + ["é", "z", "Z", os.fsdecode(b"\xff"), "\U0001f41d"]
    code = grow(tmp_path / "code", {**dict.fromkeys(names, ""), **{f"x{name}/{name}": "" for name in names}})
    listed = list(members(pack(code, tmp_path / "out").path))
    folders = [f"x{name}" for name in sorted(names, key=os.fsencode)]
    inside = [path for folder in folders for path in (folder, f"{folder}/{folder[1:]}")]
    assert listed == [*sorted(names, key=os.fsencode), *inside]


@pytest.mark.parametrize(
    "change",
    [{"train.py": "print(2)\n"}, {"more.py": ""}, {"another": None}, {"lib/oldest": "->model.py"}],
    ids=["content", "file", "folder", "link"],
)
def test_other_content_has_another_hash(change: Tree, tmp_path: Path) -> None:
    code = grow(tmp_path / "code", PROJECT)
    before = pack(code, tmp_path / "out")
    after = pack(grow(code, change), tmp_path / "out")
    assert before.hash != after.hash
    assert before.path.exists() and after.path.exists()


def test_the_x_bit_and_a_links_target_are_content(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"a": "", "b": "", "link": "->a"})
    hashes = {pack(code, tmp_path / "out").hash}
    (code / "a").chmod(0o755)
    hashes.add(pack(code, tmp_path / "out").hash)
    (code / "link").unlink()
    grow(code, {"link": "->b"})
    hashes.add(pack(code, tmp_path / "out").hash)
    assert len(hashes) == 3


def test_paths_are_part_of_the_hash(tmp_path: Path) -> None:
    one = pack(grow(tmp_path / "one", {"a": "bc", "b": ""}), tmp_path / "out")
    other = pack(grow(tmp_path / "other", {"a": "", "b": "bc"}), tmp_path / "out")
    assert one.hash != other.hash


def test_an_archive_that_is_there_is_reused(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", PROJECT)
    first = pack(code, tmp_path / "out")
    before = first.path.stat()
    assert pack(code, tmp_path / "out") == first
    assert (first.path.stat().st_ino, first.path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list((tmp_path / "out").iterdir()) == [first.path]


def test_the_target_folder_is_made_and_private(tmp_path: Path) -> None:
    archive = pack(grow(tmp_path / "code", PROJECT), tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert archive.path.stat().st_mode & 0o777 == 0o600


def test_a_target_folder_in_the_code_directory_is_not_packed(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"train.py": ""})
    first, second = pack(code, code / "experiments" / "code"), pack(code, code / "experiments" / "code")
    assert first == second
    assert packed_files(second.path) == {"train.py"}


def test_a_target_that_cannot_be_written_is_the_systems_error(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", PROJECT)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(FileExistsError):
        pack(code, tmp_path / "out")


def test_the_directory_may_be_named_by_a_link(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", PROJECT)
    (tmp_path / "link").symlink_to(code)
    assert pack(tmp_path / "link", tmp_path / "out") == pack(code, tmp_path / "out")


def test_a_hard_link_is_a_file(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"a": "text"})
    (code / "b").hardlink_to(code / "a")
    assert content(pack(code, tmp_path / "out").path, "b") == b"text"


def test_deep_trees(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {})
    path = "/".join(["d"] * 300)
    grow(code, {f"{path}/file": "deep"})
    assert content(pack(code, tmp_path / "out").path, f"{path}/file") == b"deep"


def test_the_bytes_are_a_plain_gzip_of_a_pax_tar(tmp_path: Path) -> None:
    archive = pack(grow(tmp_path / "code", {"größe": "x"}), tmp_path / "out")
    assert archive.path.read_bytes()[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "no name, no time"
    with gzip.open(archive.path) as unzipped, tarfile.open(fileobj=unzipped) as tar:
        assert tar.getmember("größe").pax_headers == {"path": "größe"}


def test_two_thousand_files_take_less_than_a_second(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {f"folder{n % 40}/module{n}.py": "import os\n" * 100 for n in range(2000)})
    begin = time.process_time()
    archive = pack(code, tmp_path / "out")
    assert time.process_time() - begin < 1.0
    assert archive.files == 2000


def test_memory_does_not_grow_with_files(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {})
    with (code / "large").open("wb") as file:
        file.truncate(64 * 1024**2)
    tracemalloc.start()
    pack(code, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024**2


def test_packing_that_is_not_wanted_any_more_leaves_nothing(tmp_path: Path) -> None:
    code, answers = grow(tmp_path / "code", {"large": "x" * 2**20}), iter([True, True, False])
    with pytest.raises(NotWanted):
        pack(code, tmp_path / "out", lambda: next(answers))
    assert list((tmp_path / "out").iterdir()) == []
