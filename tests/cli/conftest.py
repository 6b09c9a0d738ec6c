"""A way to run commands against a daemon that is a dictionary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from fake_manager import FakeManager

from nni_manager.cli.main import nnictl as group


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager()


@pytest.fixture
def nnictl(manager: FakeManager) -> Callable[..., Result]:
    """Runs ``nnictl …`` against `manager`."""
    return lambda *words, **options: CliRunner().invoke(group, words, obj=lambda directory: manager, **options)
