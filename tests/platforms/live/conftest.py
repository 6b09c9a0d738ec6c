"""The contract suite against a real service, where the command line names one."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Asked for or not there: a skip would be one more thing that nobody reads."""
    return True if collection_path.name == "test_live.py" and config.getoption("live") is None else None
