"""`nnictl` and `nni-manager` as real processes with their own data directory: output, effects and leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.command_line import REPORT, RUN_ON, CommandLine, command_line, id_in, state_of
from tests.live_daemon import Daemon, assert_gone
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

FAIL = "echo nothing works >&2; exit 3"


@pytest.fixture
def nnictl(tmp_path: Path) -> Iterator[CommandLine]:
    """A command line without a daemon."""
    with command_line(tmp_path) as line:
        yield line


@pytest.fixture(params=["started by itself", "serve"])
def either(request: pytest.FixtureRequest, nnictl: CommandLine) -> CommandLine:
    """A command line whose first command starts a daemon, or with a serving one."""
    if request.param == "serve":
        nnictl.serve()
    return nnictl


#: Starts slowly.
SLOW_TUNER = """import time
import nni.tuner

time.sleep(2)


class Slow(nni.tuner.Tuner):
    def update_search_space(self, space):
        pass

    def generate_parameters(self, *_, **__):
        return {"x": 0.5}

    def receive_trial_result(self, *_, **__):
        pass
"""


# create --foreground


def test_foreground_returns_when_the_experiment_is_done(nnictl: CommandLine) -> None:
    out = nnictl.good("create", "--config", nnictl.config(), "--foreground")
    id_ = id_in(out)
    assert f"Logs  {nnictl.data / id_}\n" in out
    assert "4/4 done, 0 running, 0 failed; best (highest) 7" in out
    assert (
        f"Experiment {id_} is done, as maxTrialNumber (4) is reached. Best (highest) result 7, trial " in out
        and '"x": 0.' in out
    )
    trials, view = f"`nnictl trial ls {id_}` shows its trials", f"`nnictl view {id_}` opens its page again"
    assert out.endswith(f"Experiment {id_} is closed; {trials}; {view}.\n")
    assert nnictl.traces() == []


def test_foreground_fails_if_no_trial_succeeds(nnictl: CommandLine) -> None:
    done = nnictl.run("create", "-c", nnictl.config(trialCommand=FAIL), "-f")
    id_ = id_in(done.stdout)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"Experiment {id_} is done, as maxTrialNumber (4) is reached, but no trial succeeded; 4 of 4 trials failed,"
        " 4 of them in the same way: its command failed, exit code 3: nothing works (USER_CODE); `nnictl trial show"
    )
    assert nnictl.traces() == []
    assert nnictl.good("trial", "ls", id_).count("exit code 3") == 4


def test_foreground_ends_on_hold_and_continues_after_resume(nnictl: CommandLine) -> None:
    gate = nnictl.folder / "mended"
    command = f"if [ ! -e {gate} ]; then {FAIL}; fi; {REPORT}"
    done = nnictl.run("create", "-c", nnictl.config(trialCommand=command, maxTrialNumber=12), "-f")
    id_ = id_in(done.stdout)
    assert done.returncode == 1
    assert f"Experiment {id_} is on hold: the first 5 trials all failed in the same way" in done.stderr
    assert f"Continue it with `nnictl resume {id_}`, or end it with `nnictl stop {id_}`." in done.stderr
    assert nnictl.processes() != [], "an experiment on hold keeps its daemon"
    gate.touch()
    assert "12/12 done" in nnictl.good("resume", id_, "--foreground")
    assert nnictl.traces() == []


def test_foreground_ends_on_an_error(nnictl: CommandLine) -> None:
    """An error cannot be caused on this machine, so the test sets the state."""
    with nnictl.start("create", "-c", nnictl.config(trialCommand=RUN_ON), "-f") as process:
        id_ = _id_of(process)
        state_of(nnictl.daemon, id_, RUNNING=2)
        _set_status(nnictl.daemon, id_, "ERROR")
        nnictl.daemon.call("PATCH", f"/experiments/{id_}", json={"experimentName": "woken"})
        out, err = process.communicate(timeout=20)
    assert process.returncode == 1, out
    assert err.startswith(f"Experiment {id_} stopped on an error") and f"`nnictl resume {id_}`" in err
    nnictl.good("stop", id_)
    assert nnictl.traces() == []


def test_interrupt_stops_experiment_and_daemon(nnictl: CommandLine) -> None:
    with nnictl.start("create", "-c", nnictl.config(trialCommand=RUN_ON), "--foreground") as process:
        id_ = _id_of(process)
        state_of(nnictl.daemon, id_, RUNNING=2)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"Experiment {id_} is stopped; continue it with `nnictl resume {id_}`." in err
    assert nnictl.traces() == []
    assert f"{id_}  " in (listed := nnictl.good("experiment", "list", "--all")) and "STOPPED" in listed


def test_interrupt_during_creation_stops_the_experiment(nnictl: CommandLine) -> None:
    """The daemon completes the request, so the command waits for its answer."""
    (nnictl.folder / "slow.py").write_text(SLOW_TUNER)
    tuner = {"codeDirectory": ".", "className": "slow.Slow"}
    with nnictl.start("create", "-c", nnictl.config(tuner=tuner, trialCommand=RUN_ON), "--foreground") as process:
        until(lambda: [*nnictl.data.glob("*/db")], 20)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "The experiment stops as soon as it has started" in err
    assert f"Experiment {id_in(out)} is stopped; continue it with" in err
    assert nnictl.traces() == []
    assert "STOPPED" in nnictl.good("experiment", "list", "--all")


# In the background


def test_ending_daemon_leaves_new_experiments_to_the_next(nnictl: CommandLine) -> None:
    for _ in range(6):
        with nnictl.start("stop", "--all") as stopping:
            nnictl.good("create", "--config", nnictl.config(trialCommand=RUN_ON))
            assert stopping.wait(20) == 0
        nnictl.good("stop", "--all")
    assert nnictl.traces() == []


def test_experiment_is_created_shown_and_stopped(either: CommandLine) -> None:
    nnictl = either
    id_ = nnictl.create(trialCommand=RUN_ON, experimentName="first", trialConcurrency=3)
    state_of(nnictl.daemon, id_, RUNNING=3)
    listed = nnictl.good("experiment", "list").splitlines()
    assert len(listed) == 2 and listed[1].split()[:6] == [id_, "first", "RUNNING", "0", "of", "4"]
    assert json.loads(nnictl.good("experiment", "show", id_[:3], "--json"))["counts"]["RUNNING"] == 3
    assert "0/4 done, 3 running, 0 failed" in nnictl.good("experiment", "status")
    trials = json.loads(nnictl.good("trial", "ls", "--json"))
    assert [trial["status"] for trial in trials] == ["RUNNING"] * 3
    trial = trials[0]["id"]
    log = nnictl.good("log", "trial", "--trial_id", trial, "--stdout")
    assert log == "running\n"
    assert nnictl.good("trial", "kill", "--trial_id", trial) == f"Trial {trial} was asked to stop.\n"
    nnictl.daemon.wait_for(id_, lambda state: state["counts"].get("USER_CANCELED") == 1)
    assert "trialConcurrency is now 1" in nnictl.good("update", "concurrency", "--value", 1)
    assert "maxTrialNumber is now 9" in nnictl.good("update", "trialnum", "-v", 9)
    assert "maxExperimentDuration is now 2h" in nnictl.good("update", "duration", "-v", "2h")
    space = nnictl.folder / "space.json"
    space.write_text('{"x": {"_type": "uniform", "_value": [5, 6]}}')
    nnictl.good("update", "searchspace", "--filename", space)
    space.write_text('{"x": {"_type": "unifrom", "_value": [5, 6]}}')
    assert nnictl.bad("update", "searchspace", "--filename", space)[0] == 2
    shown = json.loads(nnictl.good("experiment", "show", "--json"))
    assert (shown["trialConcurrency"], shown["maxTrialNumber"]) == (1, 9)
    assert shown["config"]["searchSpace"]["x"]["_value"] == [5, 6]
    assert nnictl.good("stop") == f"Experiment {id_} is stopped.\n"
    assert nnictl.good("experiment", "list") == "No experiment is open; --all lists closed ones too.\n"
    nnictl.good("resume", id_)
    state_of(nnictl.daemon, id_, RUNNING=1)
    code, sentence = nnictl.bad("experiment", "delete", id_, "--yes")
    assert (code, sentence) == (1, f"nnictl: experiment {id_} is running; stop it first (`nnictl stop {id_}`)")
    nnictl.good("stop", "--all")
    assert nnictl.good("experiment", "delete", id_, "--yes") == f"Experiment {id_} is removed.\n"
    assert not (nnictl.data / id_).exists()
    assert nnictl.good("experiment", "list", "--all") == "No experiments.\n"


def test_log_follows_a_trial_to_its_end(nnictl: CommandLine) -> None:
    gate = nnictl.folder / "gate"
    os.mkfifo(gate)
    id_ = nnictl.create(trialCommand=f"echo before; cat {gate}; echo after", maxTrialNumber=1)
    state_of(nnictl.daemon, id_, RUNNING=1)
    (trial,) = json.loads(nnictl.good("trial", "ls", "--json"))
    with nnictl.start("log", "trial", "-T", trial["id"], "--stdout", "--follow") as process:
        assert process.stdout is not None and process.stdout.readline() == "before\n"
        gate.write_text("meanwhile\n")
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "meanwhile\nafter\n")
    nnictl.good("stop", "--all")


def test_config_check_needs_no_daemon(nnictl: CommandLine) -> None:
    good = nnictl.config()
    assert nnictl.run("config", "check", good).stdout == f"{good}: valid; at most 4 trials of Random on local\n"
    wrong = nnictl.config("wrong.yml", trialConcurency=2, maxTrialNumber="many")
    done = nnictl.run("config", "check", wrong)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"{wrong}:1: trialConcurrency: ") or any("trialConcurency" in line for line in lines)
    place = next(n for n, line in enumerate(wrong.read_text().splitlines(), 1) if "maxTrialNumber" in line)
    assert any(line.startswith(f"{wrong}:{place}: maxTrialNumber: ") for line in lines), lines
    assert not nnictl.data.exists() and nnictl.processes() == []


# The daemon behind it


def test_two_creates_at_once_start_one_daemon(nnictl: CommandLine) -> None:
    config = nnictl.config(trialCommand=RUN_ON, maxTrialNumber=1)
    commands = [nnictl.start("create", "-c", config) for _ in range(2)]
    outs = [command.communicate(timeout=30) for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outs
    assert len({id_in(out) for out, _ in outs}) == 2
    assert len([line for line in nnictl.processes() if " serve --auto" in line]) == 1
    assert nnictl.log().count(") ready: process ") == 1
    assert len(nnictl.good("stop", "--all").splitlines()) == 2
    assert nnictl.traces() == []


def test_nothing_is_left_when_the_last_stop_returns(nnictl: CommandLine) -> None:
    first, second = (nnictl.create(trialCommand=RUN_ON) for _ in range(2))
    state_of(nnictl.daemon, second, RUNNING=2)
    assert nnictl.daemon.call("GET", "/daemon")["endsByItself"] is True
    nnictl.good("stop", first)
    assert nnictl.daemon.status(second)["counts"]["RUNNING"] == 2, "the other one keeps the daemon"
    nnictl.good("stop", "--all")
    assert nnictl.traces() == []
    assert list(nnictl.data.rglob("*-wal")) == [], "databases are closed"


def test_stop_with_nothing_open_leaves_nothing(nnictl: CommandLine) -> None:
    assert nnictl.good("stop", "--all") == "No experiment is open.\n"
    assert nnictl.traces() == []


def test_create_during_the_last_stop_is_served(nnictl: CommandLine) -> None:
    first = nnictl.create(trialCommand=RUN_ON)
    config = nnictl.config(trialCommand=RUN_ON, maxTrialNumber=1)
    commands = [nnictl.start("stop", first), *(nnictl.start("create", "-c", config) for _ in range(3))]
    outs = [command.communicate(timeout=30) for command in commands]
    assert [command.returncode for command in commands] == [0] * 4, outs
    made = {id_in(out) for out, _ in outs[1:]}
    for id_ in made:
        state_of(nnictl.daemon, id_, RUNNING=1)
    listed = json.loads(nnictl.good("experiment", "list", "--all", "--json"))
    assert {one["id"] for one in listed} == made | {first}
    nnictl.good("stop", "--all")
    assert nnictl.traces() == []


def test_serve_outlives_its_experiments(nnictl: CommandLine) -> None:
    serve = nnictl.serve("--port", "0")
    nnictl.good("create", "-c", nnictl.config(), "--foreground")
    nnictl.good("stop", "--all")
    facts = serve.call("GET", "/daemon")
    assert facts["endsByItself"] is False and serve.process is not None and facts["pid"] == serve.process.pid
    assert [listener["kind"] for listener in facts["listeners"]] == ["control", "service"]
    assert serve.terminate() == 0
    assert nnictl.traces() == []


def _kill(nnictl: CommandLine) -> None:
    os.kill(nnictl.daemon.call("GET", "/daemon")["pid"], signal.SIGKILL)


def _kill_and_serve(nnictl: CommandLine) -> None:
    _kill(nnictl)
    nnictl.serve("--port", "0")


def _take_over(nnictl: CommandLine) -> None:
    nnictl.serve("--port", "0")


def _restart(nnictl: CommandLine) -> None:
    nnictl.run("stop", program="nni-manager")
    time.sleep(1)  # as an upgrade takes
    nnictl.serve("--port", "0")


@pytest.mark.parametrize("replace", [_kill, _kill_and_serve, _take_over, _restart])
@pytest.mark.parametrize(("exit_code", "end"), [(0, REPORT), (1, FAIL)])
def test_foreground_follows_the_next_daemon(
    nnictl: CommandLine, replace: Callable[[CommandLine], None], exit_code: int, end: str
) -> None:
    wait = f"until [ -e {nnictl.folder}/go ]; do sleep 0.1; done; {end}"
    config = nnictl.config(trialCommand=wait, maxTrialNumber=2)
    with nnictl.start("create", "-c", config, "--foreground") as process:
        id_ = _id_of(process)
        state_of(nnictl.daemon, id_, RUNNING=2)
        before = _trial_pids(nnictl.daemon, id_)
        replace(nnictl)
        (nnictl.folder / "go").touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == exit_code, err
    assert f"`nnictl view {id_}`" in out
    assert not any(map(psutil.pid_exists, before))


@pytest.mark.alone
def test_command_reports_a_daemon_that_does_not_answer(nnictl: CommandLine) -> None:
    serve = nnictl.serve("--port", "0")
    assert serve.process is not None
    nnictl.create(trialCommand=RUN_ON)
    os.kill(serve.process.pid, signal.SIGSTOP)
    try:
        with nnictl.start("experiment", "list") as process:
            began = time.monotonic()
            told, took_s = process.stderr.readline(), time.monotonic() - began
            os.kill(serve.process.pid, signal.SIGCONT)
            out, _ = process.communicate(timeout=30)
    finally:
        os.kill(serve.process.pid, signal.SIGCONT)
    assert told.startswith("Waiting for the daemon at ") and took_s < 5
    assert process.returncode == 0 and "RUNNING" in out


@pytest.mark.alone
def test_sigterm_leaves_jobs_to_the_next_daemon(nnictl: CommandLine) -> None:
    serve = nnictl.serve("--port", "0")
    id_ = nnictl.create(trialCommand=RUN_ON, trialConcurrency=8, maxTrialNumber=8)
    state_of(serve, id_, RUNNING=8)
    before = _trial_pids(serve, id_)
    began = time.monotonic()
    assert serve.terminate() == 0
    took_s = time.monotonic() - began
    assert took_s < 1
    assert all(map(psutil.pid_exists, before)) and len(before) == 8
    assert not (nnictl.data / "control.json").exists()
    after = nnictl.serve()
    state_of(after, id_, RUNNING=8)
    assert _trial_pids(after, id_) == before
    nnictl.good("stop", id_)
    assert after.terminate() == 0
    assert_gone(str(nnictl.folder), within_s=1)


def test_another_interpreter_path_does_not_matter(nnictl: CommandLine) -> None:
    """Files in the folder of a config never shadow our modules."""
    for name in ("click.py", "json.py", "nni_manager.py", "trial_runner.py"):
        (nnictl.folder / name).write_text("raise SystemExit('the wrong module')\n")
    nnictl.good("create", "-c", nnictl.config(), "--foreground")


def _id_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return id_in(process.stdout.readline())


def _trial_pids(daemon: Daemon, id_: str) -> set[int]:
    """The main processes of its running trials."""
    mark = str(daemon.data / id_ / "trials")
    found = set()
    for process in psutil.process_iter(["cmdline", "environ"]):
        if process.info["cmdline"] == ["sleep", "1000"] and mark in (process.info["environ"] or {}).get(
            "NNI_SYS_DIR", ""
        ):
            found.add(int(process.pid))
    return found


def _set_status(daemon: Daemon, id_: str, status: str) -> None:
    with contextlib.closing(sqlite3.connect(daemon.data / id_ / "db" / "nni.sqlite", timeout=20)) as connection:
        connection.execute("UPDATE experiment SET status = ?", (status,))
        connection.commit()
