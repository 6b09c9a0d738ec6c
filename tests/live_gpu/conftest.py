"""Real cards, or a skip with the reason; a daemon, and a code directory with the trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live_daemon import Daemon, running_daemon
from tests.live_gpu.journal import Journal
from trial_runner.gpu_probe import Absent, Failed, Nvml

TRIAL = Path(__file__).with_name("hold_card.py")


@pytest.fixture(scope="session")
def cards() -> list[dict[str, Any]]:
    """The idle cards of this machine."""
    try:
        nvml = Nvml()
    except (Absent, Failed) as error:
        pytest.skip(f"no GPU on this machine: {error}")
    found = nvml.cards()
    nvml.close()
    for card in found:
        busy = [process["pid"] for process in card["processes"] if process["is_compute"]]
        said = f"{card['memory_bytes'] / 2**30:.0f} GiB, processes {busy}, {card['error'] or 'no error'}"
        print(f"card {card['index']}: {card['name']}, {said}")
    free = [card for card in found if not card["error"] and not any(p["is_compute"] for p in card["processes"])]
    if not free:
        pytest.skip(f"all {len(found)} cards of this machine are in use by others")
    return free


@pytest.fixture
def daemon(tmp_path: Path, cards: list[dict[str, Any]]) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / TRIAL.name).write_bytes(TRIAL.read_bytes())
    return folder
