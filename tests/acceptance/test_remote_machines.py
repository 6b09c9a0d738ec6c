"""Three machines with real sshds and their own network: faults of links, servers, keepers and power."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.live_daemon import Daemon, picked
from tests.namespaced_machines import NamespacedMachine, namespaced_machines
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.machines, pytest.mark.alone, pytest.mark.timeout(300)]

_REPORT = """echo "{\\"type\\": \\"final\\", \\"value\\": $NNI_TRIAL_SEQ_ID}" >> "$NNI_OUTBOX" """
#: Seconds after which a silent machine is noticed.
_NOTICED_S = 30.0
_STOPPED_S = 10.0
_CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[NamespacedMachine]]:
    with namespaced_machines(3, tmp_path / "machines") as machines:
        yield machines


def test_digits_example_uses_every_machine(daemon: Daemon, machines: list[NamespacedMachine]) -> None:
    """The example with these machines: real training, with a Python that has scikit-learn."""
    trials, epochs = 40, 15
    config = yaml.safe_load((_CONFIGS / "digits-remote.yml").read_text())
    python = str(Path(sys.executable).parent)
    config |= {"trialConcurrency": 6, "maxTrialNumber": trials}
    config["trainingService"]["machineList"] = [machine.entry(pythonPath=python) for machine in machines]
    config["tuner"] = {"name": "TPE", "classArgs": {"optimize_mode": "maximize", "seed": 1}}
    id_ = daemon.create(config, _CONFIGS)
    sent: set[tuple[Path, int, int]] = set()
    most_at_once = 0
    while daemon.status(id_)["status"] != "DONE":
        sent |= {(file, file.stat().st_ino, file.stat().st_mtime_ns) for file in _archives(machines)}
        most_at_once = max(most_at_once, daemon.status(id_)["counts"].get("RUNNING", 0))
        time.sleep(0.2)
    assert len(sent) == len(machines), "code is sent once"
    listed = daemon.call("GET", f"/experiments/{id_}/trials")["trials"]
    assert [(trial["status"], trial["intermediates"]) for trial in listed] == [("SUCCEEDED", epochs)] * trials
    assert all(0.05 < trial["finalValue"] <= 1 for trial in listed) and max(t["finalValue"] for t in listed) > 0.9
    attempts = daemon.attempts(id_)
    assert set(picked(attempts, "number")) == {(1,)} and most_at_once == 6
    places = Counter(attempt["place"] for attempt in attempts)
    assert set(places) == {machine.address for machine in machines} and min(places.values()) >= trials // 6, places
    daemon.call("POST", f"/experiments/{id_}/stop")
    _check_nothing_runs(machines)


def test_no_trial_is_lost_or_run_twice_under_faults(
    daemon: Daemon, machines: list[NamespacedMachine], tmp_path: Path
) -> None:
    one, two, three = machines
    trials = 40
    id_ = daemon.create(_config(machines, f"sleep 2; {_REPORT}", concurrency=6, trials=trials), _code(tmp_path))
    _wait_for_ended(daemon, id_, 4)
    one.cut()
    two.kill_sshd()
    three.kill_keeper()
    _wait_for_ended(daemon, id_, 12)
    daemon.kill()
    daemon.start()
    _wait_for_ended(daemon, id_, 20)
    one.heal()
    daemon.wait(id_, "DONE", timeout_s=150)
    ends = picked(daemon.trials(id_), "sequenceId", "status", "finalResult")
    assert ends == [(number, "SUCCEEDED", str(number)) for number in range(trials)]
    # the next keeper took over the running jobs of the killed one, unless they had ended before
    # a job in transit when both ends were lost has never started
    attempts = daemon.attempts(id_)
    good = [attempt for attempt in attempts if attempt["state"] == "SUCCEEDED"]
    others = [attempt for attempt in attempts if attempt not in good and attempt["startedMs"] is not None]
    assert set(picked(others, "state", "place")) <= {("LOST", three.address)}
    assert len(good) >= trials - 2
    assert any(attempt["interruptions"] for attempt in attempts if attempt["place"] == one.address)
    assert {attempt["place"] for attempt in attempts} - {""} == {machine.address for machine in machines}
    assert len(_archives(machines)) == len(machines), "code is sent once"
    daemon.call("POST", f"/experiments/{id_}/stop")
    _check_nothing_runs(machines)


def test_trials_of_a_vanished_machine_run_elsewhere(
    daemon: Daemon, machines: list[NamespacedMachine], tmp_path: Path
) -> None:
    command = f"trap '' TERM; (trap '' TERM; sleep 60) & sleep 3; {_REPORT}; wait"
    quick = f"if [ -e {tmp_path}/quick ]; then sleep 0.2; {_REPORT}; else {command}; fi"
    id_ = daemon.create(_config(machines, quick, concurrency=3, trials=12, grace="25s"), _code(tmp_path))
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 3)
    trial, place = picked(_running_on(daemon, id_), "trialId", "place")[0]
    silent = next(machine for machine in machines if machine.address == place)
    silent.drop()
    (tmp_path / "quick").touch()
    begun = time.monotonic()
    daemon.wait_for(id_, lambda _: _unknown(daemon, id_), timeout_s=_NOTICED_S)
    assert time.monotonic() - begun <= _NOTICED_S
    assert set(picked(_unknown(daemon, id_), "place")) == {(silent.address,)}
    daemon.wait_for(id_, lambda _: daemon.trial(id_, trial)["attempts"][0]["state"] == "LOST", timeout_s=60)
    # the others continued, and it is retried elsewhere
    daemon.wait_for(id_, lambda _: _place_of_the_second(daemon, id_, trial), timeout_s=60)
    assert _place_of_the_second(daemon, id_, trial) != silent.address
    assert silent.users_processes()
    silent.heal()
    until(lambda: not [command for command in silent.users_commands() if "sleep" in command], 40)
    for process in _sleepers([machine for machine in machines if machine is not silent]):
        with suppress(psutil.Error):
            process.kill()
    daemon.wait(id_, "DONE", timeout_s=100)
    assert daemon.status(id_)["counts"] == {"SUCCEEDED": 12}
    assert len(daemon.results(id_, trial, type="FINAL")) == 1
    daemon.call("POST", f"/experiments/{id_}/stop")
    _check_nothing_runs(machines)


def test_stop_with_a_dead_machine_ends_named_leftovers_later(
    daemon: Daemon, machines: list[NamespacedMachine], tmp_path: Path
) -> None:
    dead = machines[1]
    id_ = daemon.create(_config(machines, "sleep 300", concurrency=3, trials=3), _code(tmp_path))
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING") == 3)
    dead.drop()
    begun = time.monotonic()
    daemon.call("POST", f"/experiments/{id_}/stop")
    daemon.wait(id_, "STOPPED", timeout_s=_STOPPED_S + 5)
    assert time.monotonic() - begun <= _STOPPED_S
    warnings = daemon.status(id_)["warnings"]
    [left] = [warning["message"] for warning in warnings if "may still run" in warning["message"]]
    assert f"{dead.address} unreachable since" in left and "nnictl platform clean remote" in left, left
    assert dead.users_processes()
    dead.heal()
    left = daemon.call("POST", "/platforms/clean", json={})
    assert not any(one["trouble"] for one in left["cleaned"]), "the daemon's own look may have been faster"
    _check_nothing_runs(machines)


def _config(
    machines: list[NamespacedMachine], command: str, *, concurrency: int, trials: int, grace: str = "10m"
) -> dict[str, Any]:
    python = str(Path(shutil.which("python3") or "").parent)
    return {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": command,
        "trialCodeDirectory": ".",
        "trialConcurrency": concurrency,
        "maxTrialNumber": trials,
        "tuner": {"name": "Random", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {
            "platform": "remote",
            "machineGracePeriod": grace,
            "machineList": [machine.entry(pythonPath=python) for machine in machines],
        },
    }


def _code(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    folder.mkdir()
    (folder / "note.txt").write_text("sent\n")
    return folder


def _archives(machines: list[NamespacedMachine]) -> list[Path]:
    """Completely sent code."""
    return [file for machine in machines for file in machine.home.glob(".nni-manager/*/*/*/*.tar.gz")]


def _wait_for_ended(daemon: Daemon, id_: str, count: int) -> None:
    daemon.wait_for(id_, lambda state: state["counts"].get("SUCCEEDED", 0) >= count, timeout_s=100)


def _running_on(daemon: Daemon, id_: str) -> list[dict[str, Any]]:
    """Attempts."""
    return [attempt for attempt in daemon.attempts(id_) if attempt["state"] == "RUNNING"]


def _unknown(daemon: Daemon, id_: str) -> list[dict[str, Any]]:
    """Unreachable attempts."""
    return [attempt for attempt in daemon.attempts(id_) if attempt["unreachable"]]


def _place_of_the_second(daemon: Daemon, id_: str, trial: str) -> str:
    """Place of the trial's second attempt; empty: none yet."""
    return "".join(attempt["place"] for attempt in daemon.trial(id_, trial)["attempts"][1:2])


def _sleepers(machines: list[NamespacedMachine]) -> list[psutil.Process]:
    found = []
    for machine in machines:
        for process in machine.users_processes():
            with suppress(psutil.Error):
                if process.cmdline()[:1] == ["sleep"]:
                    found.append(process)
    return found


def _check_nothing_runs(machines: list[NamespacedMachine]) -> None:
    """A keeper without jobs exits soon after its last connection."""
    until(lambda: not [p for machine in machines for p in machine.users_processes()], 20)
