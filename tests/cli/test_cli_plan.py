"""`nnictl plan`: its text and its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from fake_manager import FakeManager

pytestmark = pytest.mark.unit

Run = Callable[..., Result]
BUSY = "gpu 0 on hostA busy: pid 4242 of user x, 11 GiB"


def service(**fields: Any) -> dict[str, Any]:
    base = {"service": "local", "platform": "local", "trials": 2, "places": [], "whyNot": {}, "trouble": ""}
    return {**base, **fields}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "experiment.yml"
    path.write_text("trialConcurrency: 2\n")
    return str(path)


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (
            service(places=["hostA, gpu 1"], whyNot={"hostA": BUSY}),
            ["local: 1 of the first 2 trials would start now", "  trial 1: hostA, gpu 1", f"  no more: {BUSY}"],
        ),
        (
            service(trials=1, whyNot={"hostA": BUSY}),
            ["local: the first trial would wait", f"  no more: {BUSY}"],
        ),
        (
            service(trials=1, places=["hostA"]),
            ["local: the first trial would start now", "  trial 1: hostA"],
        ),
        (service(service="openpai-2", places=None), ["openpai-2: the service decides where trials run"]),
        (service(places=None, trouble="no answer"), ["local: cannot be reached: no answer"]),
    ],
)
def test_plan_output(nnictl: Run, manager: FakeManager, file: str, plan: dict[str, Any], lines: list[str]) -> None:
    manager.plans = [plan]
    assert nnictl("plan", "--config", file).stdout.splitlines() == lines


def test_plan_request_and_json(nnictl: Run, manager: FakeManager, file: str) -> None:
    manager.plans = [service(places=["hostA, gpu 1"])]
    assert json.loads(nnictl("plan", "-c", file, "--json").stdout) == manager.plans
    [(verb, config, caller)] = manager.calls
    assert (verb, config) == ("plan", "trialConcurrency: 2\n")
    assert caller["file"] == file and caller["directory"] == str(Path(file).parent) and "PATH" in caller["environment"]
