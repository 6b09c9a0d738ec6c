"""Times that a keeper reports while the machine's clock is set."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper_client_for_tests import KeeperProcess, keeper_directory

pytestmark = pytest.mark.acceptance

HOUR_S = 3600
#: Far less than the clock is set by, and far more than a slow machine needs.
MOST_MS = 1_000_000


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """By how many seconds the clock of what is started now is wrong."""
    library, source = tmp_path / "shifted_clock.so", Path(__file__).parents[1] / "shifted_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    shift = tmp_path / "shift"
    shift.write_text("0")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("SHIFTED_CLOCK_FILE", str(shift))
    return shift


@pytest.fixture
def keeper(clock: Path) -> Iterator[KeeperProcess]:
    with keeper_directory() as keeper:
        assert keeper.start() == b"ready\n"
        yield keeper


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_set_changes_no_duration(keeper: KeeperProcess, clock: Path, step_s: int) -> None:
    client = keeper.connect()
    os.mkfifo(keeper.directory / "go")
    keeper.spawn(client, "job", "read line < go")
    clock.write_text(str(step_s))
    running = client.ask("list")["jobs"]["job"]
    assert 0 <= running["started_ago_ms"] < MOST_MS
    (keeper.directory / "go").write_text("on\n")
    ended = client.until_ended("job").jobs["job"]
    assert 0 <= ended["ended_ago_ms"] <= ended["started_ago_ms"] < MOST_MS
    _, main, end = map(json.loads, keeper.state_file("job").read_text().splitlines())
    assert 0 <= end["ended_ms"] - main["started_ms"] < MOST_MS
    clock.write_text(str(3 * step_s))
    keeper.kill()
    keeper.start()
    found = keeper.connect().ask("list")["jobs"]["job"]
    assert 0 <= found["ended_ago_ms"] <= found["started_ago_ms"] < MOST_MS
