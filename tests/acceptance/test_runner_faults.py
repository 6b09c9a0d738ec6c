"""Faults between real runners and the daemon: kills of either, absence, contradictions."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.numbered import LISTENING, Numbered
from tests.live_daemon import Daemon, picked, processes_of
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180), pytest.mark.group("runner_faults")]


def test_trials_ending_while_the_daemon_is_away_deliver_later(listening: Daemon, code: Path) -> None:
    """The daemon is killed at the first results, and restarts after the last of eight trials has ended."""
    work = Numbered(listening, code, trials=8, steps=100, pause_s=0.1)
    listening.wait_for(work.id, lambda _: len([values for values in work.stored().values() if values]) == 8)
    listening.kill()
    until(lambda: work.ended() == 8, 90)
    before = _held(work)
    assert all(0 < len(before[job]) < len(work.results(job)) for job in work.noted()), "there is something to tell"
    listening.start(*LISTENING)
    work.wait(120)
    work.check("push")


def test_repeated_daemon_kills_cost_no_result(listening: Daemon, code: Path) -> None:
    work = Numbered(listening, code, trials=24, steps=20, pause_s=0.05)
    for number in range(4, 24, 4):
        until(lambda number=number: work.ended() >= number, 60)
        listening.kill()
        listening.start(*LISTENING)
    work.wait(120)
    work.check("push")


@pytest.mark.parametrize("channel", ["push", "pull"])
def test_killed_runner_fails_its_trial_and_leaves_no_process(shared: Daemon, code: Path, channel: str) -> None:
    """The platform reports the job's end; earlier results count, and no process is left."""
    work = Numbered(shared, code, trials=2, steps=100_000, platform={"channel": channel}, trialConcurrency=1)
    shared.wait_for(work.id, lambda _: any(len(values) > 3 for values in work.stored().values()))
    ((job, trial),) = picked(shared.attempts(work.id), "jobName", "trialId")
    runner = _runner_of(job)
    runner.send_signal(signal.SIGKILL)
    ended = shared.wait_for(work.id, lambda state: state["counts"].get("FAILED") == 1)
    assert ended["status"] in ("RUNNING", "NO_MORE_TRIAL"), "the next trial follows, or is there already"
    assert [process for process in processes_of(f"{job}:runner:")] == []
    status, reason, exit_code, _ = work.ends()[job]
    assert (status, reason, exit_code) == ("FAILED", "USER_CODE", None)
    stored, wrote = work.stored()[job], work.results(job)
    assert stored == wrote[: len(stored)]
    assert len(stored) == len(wrote) if channel == "pull" else len(stored) > 3
    message = shared.trial(work.id, trial)["message"]
    assert message == "killed by signal 9 (SIGKILL); the manager did not send it, perhaps the system ran out of memory"
    shared.call("POST", f"/experiments/{work.id}/stop")


@pytest.mark.parametrize("late_s", [0, 1])
def test_runner_exit_wins_over_a_contradicting_platform(shared: Daemon, code: Path, late_s: int) -> None:
    """The platform reports after the runner's exit has decided the trial; the contradiction is a warning."""
    rules = [
        {"match": {"sequence": 0}, "exitCode": 1},
        {"match": {"sequence": 1}, "signal": 9, "reason": "OOMKilled"},
        {"match": {"sequence": 3}, "exitCode": 0},
    ]
    platform = {"trials": rules, "lateEvents": late_s}
    work = Numbered(shared, code, trials=8, platform=platform)
    work.wait(60)
    work.check("push")
    names = [trial["id"] for trial in shared.trials(work.id)]
    runner = {0: "exit code 0", 1: "exit code 0", 3: "exit code 3"}
    killed = "killed by signal 9 (SIGKILL); the manager did not send it, perhaps the system ran out of memory"
    cluster = {0: "FAILED (exit code 1)", 1: f"FAILED ({killed})", 3: "SUCCEEDED (exit code 0)"}
    expected = {names[n]: f"the platform reports {cluster[n]}, the runner reports {runner[n]}" for n in runner}
    until(lambda: _disagreements(work) == expected)
    states = ["FAILED", "FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED"]
    until(lambda: [attempt["state"] for attempt in shared.attempts(work.id)] == states)


def _held(work: Numbered) -> dict[str, list[Any]]:
    """By job: values in the order of the database, because no daemon runs."""
    found: dict[str, list[Any]] = {job: [] for job in work.noted()}
    query = "SELECT job_name, data FROM metrics m JOIN attempts a ON (a.trial_id, a.number) = (m.trial_id, m.attempt)"
    for job, data in work.daemon.rows(work.id, f"{query} ORDER BY m.id"):
        found[job].append(json.loads(data))
    return found


def _runner_of(job: str) -> psutil.Process:
    """The process that wraps the command of this job."""
    found = []
    for process in processes_of(job):
        with contextlib.suppress(psutil.Error):
            line, environment = process.cmdline(), process.environ()
            if line[-1:] and line[-1].endswith("runner.pyz") and environment.get("NNI_RUNNER_COMMAND"):
                found.append(process)
    (runner,) = found
    return runner


def _disagreements(work: Numbered) -> dict[str, str]:
    """By trial; each is told once."""
    found = re.findall(r"(?:Trial |_trial_)(\w{5}): (the platform reports .*)", work.log())
    assert len(found) == len(dict(found))
    return dict(found)
