"""Unsupported files are refused by name, and nothing outside the directory is ever read."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from code_directories import content, grow, members, packed_files

from nni_manager.code_archive import pack, packing
from nni_manager.code_archive.tree import Changed, Listing, Tree
from nni_manager.domain.errors import InvalidInput

pytestmark = pytest.mark.unit


def refusal(code: Path) -> str:
    """What the user is told; nothing is left behind."""
    with pytest.raises(InvalidInput) as caught:
        pack(code, code.parent / "out")
    assert list((code.parent / "out").iterdir()) == []
    return str(caught.value)


def test_no_such_directory(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert refusal(missing) == f"trialCodeDirectory: cannot find folder '{missing}'; correct the path."
    (tmp_path / "file").write_text("")
    assert "cannot find folder" in refusal(tmp_path / "file")


# links that stay


@pytest.mark.parametrize(
    "target",
    ["model.py", "../lib/model.py", "./model.py", "..", ".", "../lib/../lib/./model.py", "deep/", "self", "deep//up"],
)
def test_links_inside_stay_as_they_are(target: str, tmp_path: Path) -> None:
    tree = {"lib/model.py": "", "lib/deep/up": "->..", "lib/self": "->.", "lib/link": f"->{target}"}
    archive = pack(grow(tmp_path / "code", tree), tmp_path / "out")
    assert members(archive.path)["lib/link"].linkname == target
    assert packed_files(archive.path) == tree.keys()


def test_an_absolute_link_inside_becomes_relative(tmp_path: Path) -> None:
    code = tmp_path / "code"
    grow(code, {"data/a": "", "lib/deep/link": f"->{code}/data/a", "all": f"->{code}"})
    found = members(pack(code, tmp_path / "out").path)
    assert found["lib/deep/link"].linkname == "../../data/a"
    assert found["all"].linkname == "."


def test_an_unpacked_link_leads_to_the_same_place(tmp_path: Path) -> None:
    code = tmp_path / "code"
    grow(code, {"data/a": "here", "lib/real/x": "", "short": "->lib/real", "lib/real/link": f"->{code}/data/a"})
    shutil.unpack_archive(pack(code, tmp_path / "out").path, tmp_path / "there", filter="data")
    assert (tmp_path / "there" / "short" / "link").resolve() == tmp_path / "there" / "data" / "a"


# links that do not


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../secret", "../../secret", "..", "../code/train.py", "lib/../../code/train.py", "/", "ignored/a"],
)
def test_links_out_are_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path.parent / "secret").write_text("secret")
    grow(tmp_path / "outside", {"a": ""})
    tree = {
        ".nniignore": "ignored",
        "train.py": "",
        "lib/a": "",
        "ignored": "->../outside",
        "link": f"->{target}",
    }
    code = grow(tmp_path / "code", tree)
    assert refusal(code) == (
        f"trialCodeDirectory: 'link' in '{code}' is a link that leads out of it, to '{target}'; copy its target "
        "into the directory, or list it in .nniignore."
    )


@pytest.mark.parametrize("target", ["nothing", "train.py/x", "/no/such/thing", "link", "../nothing"])
def test_links_to_nothing_are_refused(target: str, tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"train.py": "", "lib/link": f"->{target}"})
    assert f"'lib/link' in '{code}' is a link to '{target}', which cannot be followed" in refusal(code)


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    grow(tmp_path / "code-of-others", {"a": ""})
    code = grow(tmp_path / "code", {"link": f"->{tmp_path}/code-of-others/a"})
    assert "leads out of it" in refusal(code)


def test_rules_are_not_read_through_a_link(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {".gitignore": "data", "lib/.nniignore": "->../.gitignore"})
    assert "'lib/.nniignore' in" in (text := refusal(code))
    assert "is a symbolic link" in text


def test_rules_without_end_are_refused(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {".nniignore": "x\n" * 600_000})
    assert "has more than 1 MB of rules" in refusal(code)


# special files


def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"lib/a": ""})
    os.mkfifo(code / "lib" / "pipe")
    assert refusal(code) == (
        f"trialCodeDirectory: 'lib/pipe' in '{code}' is a named pipe, which cannot be sent; remove it, or list it in "
        ".nniignore."
    )


def test_a_pipe_for_rules_does_not_block(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {})
    os.mkfifo(code / ".nniignore")
    assert "'.nniignore' in" in refusal(code)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {})
    os.mknod(code / "listener", 0o600 | stat.S_IFSOCK)
    assert f"'listener' in '{code}' is a socket, which cannot be sent" in refusal(code)
    grow(code, {".nniignore": "listener"})
    assert packed_files(pack(code, tmp_path / "out").path) == {".nniignore"}


def test_undecodable_names_can_be_printed(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {})
    os.mkfifo(code / os.fsdecode(b"\xff\n"))
    assert refusal(code).encode().startswith(rb"trialCodeDirectory: '\udcff\n' in ")


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of another user than root."""
    with tempfile.TemporaryDirectory() as folder:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if is_root:
                os.seteuid(0)


@pytest.mark.parametrize("path", ["secret.py", "lib", "lib/.nniignore"])
def test_unreadable_file_is_named(path: str, unprivileged: Path) -> None:
    code = grow(unprivileged / "code", {"secret.py": "x", "lib/a": "", "lib/.nniignore": ""})
    (code / path).chmod(0)
    text = refusal(code)
    (code / path).chmod(0o700)
    assert text == (
        f"trialCodeDirectory: '{path}' in '{code}' cannot be read (Permission denied); allow this user to read it, or "
        "list it in .nniignore."
    )


def test_a_directory_that_cannot_be_read(unprivileged: Path) -> None:
    code = grow(unprivileged / "code", {})
    code.chmod(0)
    assert refusal(code).endswith("/code' cannot be read (Permission denied); allow this user to read it.")


# what changes meanwhile

Disturb = Callable[[Path], None]


@pytest.fixture
def disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Disturb, int, bool], Path]:
    """A directory in which something happens right before or after each of the first writes of an archive."""
    code = grow(tmp_path / "code", {"a.py": "first", "lib/b.py": "b" * 100_000})
    plain = packing.write_tar

    def disturb(action: Disturb, times: int, before: bool) -> Path:
        left = [action] * times

        def write(tree: Tree, listing: Listing, target: IO[bytes], is_wanted: Callable[[], bool]) -> str:
            if before and left:
                left.pop()(code)
            content_hash = plain(tree, listing, target, is_wanted)
            if not before and left:
                left.pop()(code)
            return content_hash

        monkeypatch.setattr(packing, "write_tar", write)
        return code

    return disturb


def rewrite(code: Path) -> None:
    path = code / "a.py"
    path.write_text("second")
    os.utime(path, ns=(0, path.stat().st_ino))  # clocks of file systems tick slowly


def add(code: Path) -> None:
    (code / f"new{len(list(code.iterdir()))}").write_text("")


def shorten(code: Path) -> None:
    os.truncate(code / "lib" / "b.py", (code / "lib" / "b.py").stat().st_size - 1)


def remove(code: Path) -> None:
    (code / "lib" / "b.py").unlink()


def remove_folder(code: Path) -> None:
    shutil.rmtree(code / "lib")


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("action", [rewrite, add, shorten, remove, remove_folder])
def test_a_change_while_packing_is_packed_again(
    action: Disturb, before: bool, disturbed: Callable[[Disturb, int, bool], Path], tmp_path: Path
) -> None:
    code = disturbed(action, 1, before)
    archive = pack(code, tmp_path / "out")
    expected = {str(path.relative_to(code)): path.read_bytes() for path in code.rglob("*") if path.is_file()}
    assert {name: content(archive.path, name) for name in packed_files(archive.path)} == expected
    assert list((tmp_path / "out").iterdir()) == [archive.path]


@pytest.mark.parametrize(("action", "name"), [(shorten, "lib/b.py"), (add, "new3")])
@pytest.mark.parametrize("before", [True, False])
def test_file_that_keeps_changing_is_named(
    action: Disturb, name: str, before: bool, disturbed: Callable[[Disturb, int, bool], Path]
) -> None:
    code = disturbed(action, 99, before)
    assert refusal(code) == (
        f"trialCodeDirectory: '{name}' in '{code}' keeps changing while it is packed; try again when nothing writes to "
        "it, or list it in .nniignore."
    )


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = grow(tmp_path / "code", {"a": "x" * 1_000_000})
    plain = packing._Source.read
    sizes = [1000]

    def read(source: packing._Source, size: int) -> bytes:
        if sizes:
            os.truncate(code / "a", sizes.pop())
        return plain(source, size)

    monkeypatch.setattr(packing._Source, "read", read)
    assert pack(code, tmp_path / "out").bytes == 1000


def link_file(code: Path) -> None:
    (code / "a.py").unlink()
    (code / "a.py").symlink_to(code.parent / "secret")


def link_folder(code: Path) -> None:
    shutil.rmtree(code / "lib")
    (code / "lib").symlink_to(code.parent / "outside")


@pytest.mark.parametrize(("action", "name"), [(link_file, "a.py"), (link_folder, "lib")])
def test_a_link_put_there_meanwhile_is_not_followed(
    action: Disturb, name: str, disturbed: Callable[[Disturb, int, bool], Path], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    grow(tmp_path / "outside", {"b.py": "secret"})
    code = disturbed(action, 1, True)
    assert f"'{name}' in '{code}' is a link that leads out of it" in refusal(code)


def test_folder_swapped_during_packing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, other = grow(tmp_path / "code", {"lib/a": "mine"}), grow(tmp_path / "other", {"lib/a": "else"})
    plain = packing.write_tar
    exchanges = [(code / "lib", tmp_path / "aside"), (other / "lib", code / "lib")]

    def write(tree: Tree, listing: Listing, target: IO[bytes], is_wanted: Callable[[], bool]) -> str:
        done = list(exchanges)
        exchanges.clear()
        for before, after in done:
            os.rename(before, after)
        try:
            return plain(tree, listing, target, is_wanted)
        finally:
            for before, after in reversed(done):
                os.rename(after, before)

    monkeypatch.setattr(packing, "write_tar", write)
    assert content(pack(code, tmp_path / "out").path, "lib/a") == b"mine"


@pytest.mark.parametrize("path", ["link", "link/b", "lib/link", "lib/link/b"])
def test_no_folder_is_opened_through_a_link(path: str, tmp_path: Path) -> None:
    grow(tmp_path / "outside", {"b/c": ""})
    code = grow(tmp_path / "code", {"link": "->../outside", "lib/link": "->../../outside"})
    with Tree(code) as tree, pytest.raises(Changed), tree.folder(path):
        pytest.fail("it was opened")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"lib/a": "", "lib/.nniignore": "x", "link": "->nothing"})
    before = set(os.listdir("/proc/self/fd"))
    refusal(code)
    (code / "link").unlink()
    pack(code, tmp_path / "out")
    assert set(os.listdir("/proc/self/fd")) <= before
