"""Real services, where the command line names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nni_manager.platform_kit.testing import Feature
from tests.platforms.live.live_world import Service

_OF_SERVICES = ("test_live_service.py", "test_live_cluster.py", "test_live_digits.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Deselects tests without their service, as a skip is easily overlooked."""
    return True if collection_path.name in _OF_SERVICES and config.getoption("live") is None else None


@pytest.fixture(autouse=True)
def storage_is_looked_at_often() -> None:
    """Not here: a real service has the time that the product gives it."""


@pytest.fixture
def live_service(request: pytest.FixtureRequest) -> Service:
    """What the command line says."""
    option = request.config.getoption
    return Service(
        name=option("live"),
        config=Path(option("live_config")).resolve(),
        address=option("live_address"),
        patience_s=option("live_patience"),
        without=frozenset(map(Feature, option("live_without"))),
        ledger=option("live_ledger"),
    )
