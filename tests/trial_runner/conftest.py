"""A keeper and a runner, each with its peer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper_client_for_tests import Client, KeeperProcess, keeper_directory
from listener_for_tests import FakeListener, Runner, fake_listener, runner_of


@pytest.fixture
def keeper() -> Iterator[KeeperProcess]:
    """It runs."""
    with keeper_directory() as keeper:
        assert keeper.start() == b"ready\n"
        yield keeper


@pytest.fixture
def client(keeper: KeeperProcess) -> Client:
    return keeper.connect()


@pytest.fixture
def listener() -> Iterator[FakeListener]:
    with fake_listener() as listener:
        yield listener


@pytest.fixture
def runner(listener: FakeListener, tmp_path: Path) -> Iterator[Runner]:
    with runner_of(listener, tmp_path) as runner:
        yield runner
