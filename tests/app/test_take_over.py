"""`nni-manager serve` while a daemon of `nnictl` runs; `nni-manager status` and `stop`; reading an empty data
directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command_line import RUN_ON, CommandLine, command_line, state_of

pytestmark = [pytest.mark.acceptance, pytest.mark.true_start]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def daemon(manager: CommandLine) -> dict[str, object]:
    done = manager.run("status", "--json", program="nni-manager")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def running_trials(manager: CommandLine, id_: str) -> list[tuple[str, int]]:
    trials = json.loads(manager.good("trial", "ls", id_, "--json"))
    return [(one["id"], one["startedMs"]) for one in trials if one["status"] == "RUNNING"]


def test_a_daemon_that_is_to_stay_takes_over(manager: CommandLine) -> None:
    id_ = manager.create(trialCommand=RUN_ON, maxTrialNumber=1, trialConcurrency=1)
    state_of(manager.daemon, id_, RUNNING=1)
    before, trials = daemon(manager), running_trials(manager, id_)
    assert before["endsByItself"] and len(trials) == 1
    manager.serve("--no-listen")
    after = daemon(manager)
    assert not after["endsByItself"] and after["pid"] != before["pid"]
    assert running_trials(manager, id_) == trials, "it never noticed"
    # a daemon that is to stay is not taken over
    code, line = manager.bad("serve", "--no-listen", program="nni-manager")
    assert code == 1 and f"in use by process {after['pid']}; `nni-manager status` shows it, `nni-manager stop`" in line
    told = manager.run("stop", program="nni-manager").stdout
    assert told.splitlines() == [
        f"The daemon, process {after['pid']}, has ended.",
        f"Trials of open experiments keep running: {id_}. The next daemon continues them.",
    ]
    assert manager.run("stop", program="nni-manager").stdout == f"no daemon runs for {manager.data}.\n"
    assert running_trials(manager, id_) == trials
    assert manager.run("stop", id_, program="nni-manager").stdout == f"Experiment {id_} is stopped.\n"
    manager.run("stop", program="nni-manager")
    assert manager.good("experiment", "list") == "No experiment is open; --all lists closed ones too.\n"
    assert manager.processes() == [], "no daemon is needed for that"


def test_no_daemon_to_take_over_starts_none(manager: CommandLine) -> None:
    assert manager.good("experiment", "list") == "No experiment is open; --all lists closed ones too.\n"
    assert json.loads(manager.good("experiment", "list", "--all", "--json")) == []
    for words in (("trial", "ls"), ("experiment", "show", "abc"), ("log", "stdout"), ("top",)):
        code, line = manager.bad(*words)
        assert code == 1 and line.startswith(f"nnictl: found no experiments in {manager.data}; "), words
    code, line = manager.bad("status", program="nni-manager")
    assert code == 1 and line.startswith(f"nni-manager: no daemon runs for {manager.data}; ")
    assert not manager.data.exists()
