"""Fakes as separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import sandbox
from tests.fakes.process import running

pytestmark = pytest.mark.unit


def test_missing_container_support_skips_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "missing", lambda: "containers need bubblewrap")
    with pytest.raises(pytest.skip.Exception, match="containers need bubblewrap"), running("dlts", tmp_path / "dlts"):
        pytest.fail("it was started")
