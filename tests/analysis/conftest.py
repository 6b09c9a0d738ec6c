"""An experiment that tests fill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analysis.filled import Filled, filled


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Filled]:
    with filled(tmp_path) as experiment:
        yield experiment
