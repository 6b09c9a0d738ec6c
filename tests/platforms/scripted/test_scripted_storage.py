"""What the scripted cluster puts on storage that its jobs see."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.code_archive import pack
from nni_manager.platforms.scripted.launch import fill_storage
from trial_runner import protocol

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("names", [[], ["a.py"]])
def test_empty_code_folder_exists(tmp_path: Path, names: list[str]) -> None:
    code, packed = tmp_path / "code", tmp_path / "packed"
    for folder in (code, packed):
        folder.mkdir()
    for name in names:
        (code / name).touch()
    for _ in range(2):
        fill_storage(tmp_path / "attempt", "{}", pack(code, packed).path)
    assert [path.name for path in (tmp_path / "attempt" / protocol.CODE_FOLDER).iterdir()] == names
