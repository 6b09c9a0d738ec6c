"""Whether all is closed, told without a daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.app import closed_experiments
from nni_manager.store.index import index
from nni_manager.store.migrate import migrate

pytestmark = pytest.mark.unit


def test_nnis_link_to_its_latest_experiment_is_none_of_them(tmp_path: Path) -> None:
    migrate(tmp_path / index.FILE, "index")
    (tmp_path / "elsewhere" / "gone" / "db").mkdir(parents=True)
    (tmp_path / "_latest").symlink_to(tmp_path / "elsewhere" / "gone")
    assert closed_experiments.are_all_closed(tmp_path)
    (tmp_path / "unknown" / "db").mkdir(parents=True)
    assert not closed_experiments.are_all_closed(tmp_path)
