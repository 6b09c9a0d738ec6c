"""Limits of the size of code, and the error above them."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_directories import grow, packed_files

from nni_manager.code_archive import MOST_BYTES, MOST_FILES, pack, packing, walk
from nni_manager.domain.errors import InvalidInput

pytestmark = [pytest.mark.unit, pytest.mark.timeout(30)]

MB = 1024**2


def files(folder: str, count: int) -> dict[str, str]:
    return {f"{folder}/{number}": "" for number in range(count)}


def sized(path: Path, size: int) -> None:
    """A file without blocks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def refusal(code: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        pack(code, code.parent / "out")
    assert list((code.parent / "out").iterdir()) == []
    return str(caught.value)


def test_the_limits_are_nnis() -> None:
    assert (MOST_FILES, MOST_BYTES) == (2000, 300 * MB)


def test_two_thousand_files_may_travel(tmp_path: Path) -> None:
    assert pack(grow(tmp_path / "code", files("data", 2000)), tmp_path / "out").files == 2000


def test_two_thousand_and_one_files_are_refused(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {**files("src", 100), **files("data/raw", 1901)})
    assert refusal(code) == (
        f"trialCodeDirectory: '{code}' has 2001 files, most of it in 'data/raw', but at most 2000 files can be sent to "
        "trials; list files that trials do not need in its .nniignore."
    )


def test_links_count_and_folders_do_not(tmp_path: Path) -> None:
    links = {f"links/{number}": "->../target" for number in range(1999)}
    folders: dict[str, None] = {f"folders/{number}": None for number in range(100)}
    code = grow(tmp_path / "code", {"target": "", **links, **folders})
    assert pack(code, tmp_path / "enough").files == 2000
    grow(code, {"one more": "->target"})
    assert "has 2001 files, most of it in 'links'" in refusal(code)


def test_ignored_files_do_not_count(tmp_path: Path) -> None:
    code = grow(tmp_path / "code", {"train.py": "", ".nniignore": "data/\n*.bin", **files("data", 2000)})
    sized(code / "weights.bin", 301 * MB)
    assert packed_files(pack(code, tmp_path / "out").path) == {"train.py", ".nniignore"}


def test_bytes_are_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST_BYTES", 3 * MB)
    code = grow(tmp_path / "code", {"link": "->a"})
    sized(code / "a", 2 * MB)
    sized(code / "b", 1 * MB)
    assert pack(code, tmp_path / "out").bytes == 3 * MB
    sized(code / "b", 1 * MB + 1)
    with pytest.raises(InvalidInput, match=r"has 3\.1 MB, .* but at most 3\.0 MB can be sent"):
        pack(code, tmp_path / "out")


def test_301_megabytes_are_refused_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "write_tar", lambda *_: pytest.fail("it was read"))
    code = grow(tmp_path / "code", {"train.py": "x"})
    sized(code / "data" / "images" / "all", 290 * MB)
    sized(code / "weights" / "one", 11 * MB)
    assert refusal(code) == (
        f"trialCodeDirectory: '{code}' has 301.1 MB, most of it in 'data/images', but at most 300.0 MB can be sent to "
        "trials; list files that trials do not need in its .nniignore."
    )


def test_refusal_names_the_biggest_folder_below_half(tmp_path: Path) -> None:
    three = {**files("a/x", 700), **files("b/x", 800), **files("c/x", 700)}
    assert "most of it in 'b'" in refusal(grow(tmp_path / "three" / "code", three))
    flat = {f"{number}.py": "" for number in range(1500)} | files("lib", 600)
    assert "most of it not in any folder" in refusal(grow(tmp_path / "flat" / "code", flat))


def test_counting_stops_when_it_is_far_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST_FILES", 10)
    monkeypatch.setattr(walk, "FAR_TOO_MANY", 50)
    code = grow(tmp_path / "code", {**files("a", 5), **files("data", 500), **files("never/counted", 500)})
    assert "has 50 files and more, most of it in 'data', but at most 10 files" in refusal(code)


def test_too_many_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "FAR_TOO_MANY", 50)
    code = grow(tmp_path / "code", {f"deep/{number}/x": None for number in range(60)})
    assert "has 50 folders and more, most of it in 'deep'" in refusal(code)
