"""Removing trees that others made: deep, forbidden, in use, full of links; and what is said of what stays."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deep_tree import make_deep_tree, place_for_deep_trees

from trial_runner.wire import removal

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]


@pytest.fixture
def place() -> Iterator[Path]:
    with place_for_deep_trees() as place:
        yield place


@pytest.mark.parametrize("levels", [1, 33, 200, 5000])
def test_a_deep_tree_goes_with_few_descriptors(place: Path, levels: int) -> None:
    doomed = place / "doomed"
    doomed.mkdir()
    make_deep_tree(doomed, levels)
    (doomed / ".deep-0").mkdir()
    (doomed / ".deep-0" / "file").touch()
    (doomed / ".deep-1").touch()
    before = set(os.listdir("/proc/self/fd"))
    assert removal.remove(str(doomed)) == []
    assert not doomed.exists()
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_broad_tree_goes(tmp_path: Path) -> None:
    for number in range(2500):
        (tmp_path / "doomed" / str(number)).mkdir(parents=True)
    assert removal.remove(str(tmp_path / "doomed")) == []
    assert not (tmp_path / "doomed").exists()


def test_links_are_removed_and_targets_stay(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    (doomed / "link").symlink_to(kept)
    (tmp_path / "top").symlink_to(kept)
    os.mkfifo(doomed / "pipe")
    for path in (doomed, tmp_path / "top", tmp_path / "none", tmp_path / "none" / "none"):
        assert removal.remove(str(path)) == []
        assert not os.path.lexists(path)
    assert (kept / "file").exists()


_FORBIDDEN = """
import os, sys
from trial_runner.wire import removal
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.makedirs("doomed/a/b/c")
os.chmod("doomed/a/b", 0)
os.chmod("doomed/a", 0o500)
print(removal.remove("doomed"), os.path.exists("doomed"))
print(removal.remove("others"))
"""


def test_own_closed_folders_are_opened_and_foreign_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "others" / "inside").mkdir(parents=True)
    (tmp_path / "others").chmod(0o755)
    if os.geteuid() != 0:
        (tmp_path / "others" / "inside").rmdir()  # it is ours, then: nothing of others is here
        (tmp_path / "others").rmdir()
    root = Path(removal.__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{_FORBIDDEN}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stderr == ""
    gone, others = found.stdout.splitlines()
    assert gone == "[] False"
    assert others == ("[]" if os.geteuid() else "[\"'inside' in others cannot be removed: Permission denied\"]")


def test_unopenable_parent_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert removal.remove(str(tmp_path / "file" / "x")) == [f"{tmp_path}/file/x cannot be removed: Not a directory"]
