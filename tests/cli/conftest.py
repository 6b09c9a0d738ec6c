"""Runs commands against a fake manager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_manager import CONFIG, FakeManager

from nni_manager.cli.main import nnictl as group


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager()


@pytest.fixture
def nnictl(manager: FakeManager) -> Callable[..., Result]:
    """Runs ``nnictl …`` against `manager`."""
    return lambda *words, **options: CliRunner().invoke(group, words, obj=lambda directory: manager, **options)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A valid experiment file, next to its trial program."""
    path = tmp_path / "experiment.yml"
    path.write_text(CONFIG)
    (tmp_path / "trial.py").touch()
    return path
