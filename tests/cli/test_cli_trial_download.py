"""Files of a trial that are brought into a folder where other users write."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nni_manager.cli.trial import log

pytestmark = pytest.mark.unit


class _Manager:
    """Answers with the parts of one file."""

    def trial_file(self, *_: object, offset: int, **__: object) -> Any:
        data = b"weights"[offset:]
        return SimpleNamespace(data=data, end=offset + len(data))


def test_link_planted_in_place_of_a_draft_is_not_followed(tmp_path: Path) -> None:
    private, target = tmp_path / "private", tmp_path / "model.pt"
    private.write_text("mine")
    (tmp_path / ".model.pt.part").symlink_to(private)
    log._bring(_Manager(), "exp", "trial", "model.pt", 1, target)  # type: ignore[arg-type]
    assert (private.read_text(), target.read_bytes(), target.is_symlink()) == ("mine", b"weights", False)
