"""A real daemon behind middleboxes that answer in HTTP, and runners that fail on their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nni_manager.platform_kit.testing.middlebox import Each, middlebox
from tests.acceptance.bad_network import ADDRESS, free_port
from tests.acceptance.numbered import Numbered
from tests.live_daemon import LISTENING, Daemon, picked, running_daemon

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

TRIALS = 4


def test_http_answers_of_middleboxes_cost_no_trial(code: Path, tmp_path: Path) -> None:
    """Every trial ends normally with all results, despite the answers of middleboxes."""
    port = free_port()
    at_port = running_daemon(tmp_path, *LISTENING, "--trial-port", str(port))
    with middlebox(port, Each(2 * TRIALS), listen=(ADDRESS, port)) as box, at_port as daemon:
        work = Numbered(daemon, code, trials=TRIALS, steps=10, pause_s=0.1, platform={"nniManagerIp": ADDRESS})
        work.wait(120)
        work.check("push")
        assert {trial["message"] for trial in work.shown() if trial["status"] == "SUCCEEDED"} == {""}
    assert {route for route, _ in box.met} >= {"version", "metrics", "status", "together"}


@pytest.mark.parametrize(("exit_code", "words"), [(64, "its Python are not valid"), (77, "its token was denied")])
def test_runner_that_fails_before_it_registers_is_retried(
    shared: Daemon, code: Path, exit_code: int, words: str
) -> None:
    """The failure is not the user's: the next attempt uses a platform retry."""
    folder = code.parent / "bin"
    folder.mkdir()
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    python.chmod(0o755)
    environment = {"PATH": os.pathsep.join((str(folder), os.environ["PATH"]))}
    work = Numbered(shared, code, trials=1, maxTrialRetries=1, environment=environment)
    work.wait(60)
    ((status, reason, message, attempts),) = picked(work.shown(), "status", "reason", "message", "attempt")
    assert (status, reason, attempts) == ("FAILED", "RUNNER_FAILED", 3)
    assert message.startswith("the trial runner did not start the command") and words in message
    assert picked(work.attempts(), "givenUp") == [("PLATFORM",), ("PLATFORM",), (None,)]
