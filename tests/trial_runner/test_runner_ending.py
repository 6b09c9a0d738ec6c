"""The notice that a platform will take a job away, and jobs that were cancelled before their command started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from listener_for_tests import FakeListener, Runner, is_alive

from tests.waiting import until
from trial_runner import processes, protocol
from trial_runner.runner import preparation
from trial_runner.runner.client import Client, Unavailable
from trial_runner.runner.preparation import Preparation
from trial_runner.runner.settings import read

_SENTENCE = "The platform will soon take this job away."
#: A command that ends once it is told.
_SAVES = 'until [ -e "$NNI_SYS_DIR/ending" ]; do sleep 0.01; done; echo saved'


def sent_when_started(listener: FakeListener, runner: Runner, command: str) -> subprocess.Popen[bytes]:
    """A runner whose command has got the notice after it had reported something."""
    process = runner.start(command)
    listener.wait_for(listener.values)
    process.send_signal(signal.SIGUSR1)
    return process


@pytest.mark.acceptance
def test_notice_is_a_file_and_in_the_log(listener: FakeListener, runner: Runner) -> None:
    ended = runner.wait(sent_when_started(listener, runner, f"{_REPORT}; {_SAVES}"))
    assert (ended.code, ended.stdout) == (0, "saved\n")
    assert _SENTENCE in ended.stderr
    assert listener.logs[protocol.TRIAL_LOG_FILE].decode().endswith(f"WARNING (trial_runner) {_SENTENCE}\n")
    assert listener.logs.get("stderr", b"") == b"", "the trial's own output is unchanged"


@pytest.mark.acceptance
def test_notice_reaches_only_processes_that_catch_it(listener: FakeListener, runner: Runner) -> None:
    command = f"sleep 600 & echo $! > sleeper; trap 'echo caught; exit 3' USR1; {_REPORT}; wait"
    ended = runner.wait(sent_when_started(listener, runner, command))
    assert (ended.code, ended.stdout) == (3, "caught\n")
    assert not is_alive(int((runner.system_dir / "code" / "sleeper").read_text())), "it ended with the command"
    assert listener.exited["exitCode"] == 3


@pytest.mark.acceptance
def test_second_notice_is_passed_on_and_logged_once(listener: FakeListener, runner: Runner) -> None:
    command = f"trap 'n=$((n+1)); echo heard $n >> heard' USR1; {_REPORT}; until [ \"$n\" = 2 ]; do sleep 0.01; done"
    process = sent_when_started(listener, runner, command)
    until(lambda: (runner.system_dir / "code" / "heard").exists())
    process.send_signal(signal.SIGUSR1)
    ended = runner.wait(process)
    assert (ended.code, ended.stderr.count(_SENTENCE)) == (0, 1)


@pytest.mark.acceptance
def test_notice_before_the_command_is_not_missed(listener: FakeListener, runner: Runner) -> None:
    def give_notice(route: str, _body: Any) -> None:
        if route == "version":
            process.send_signal(signal.SIGUSR1)

    listener.before = give_notice
    process = runner.start('[ -e "$NNI_SYS_DIR/ending" ] && echo told')
    assert runner.wait(process).stdout == "told\n"


@pytest.mark.acceptance
def test_notice_of_an_earlier_container_is_removed(listener: FakeListener, runner: Runner) -> None:
    runner.system_dir.mkdir()
    (runner.system_dir / protocol.ENDING_FILE).touch()
    assert runner.run('[ ! -e "$NNI_SYS_DIR/ending" ] && echo new').stdout == "new\n"


def test_caught_signals_are_those_with_a_handler() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        assert not processes.catches(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        assert processes.catches(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert not processes.catches(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_nothing_is_caught_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "_PROC", str(tmp_path))
    assert not processes.catches(os.getpid(), signal.SIGUSR1)


@pytest.mark.acceptance
def test_cancelled_job_is_not_started(listener: FakeListener, runner: Runner) -> None:
    listener.stop = 1.0
    ended = runner.run("touch ran")
    assert (ended.code, ended.stdout) == (protocol.EXIT_STOPPED, "")
    assert "The job was cancelled before its command started." in ended.stderr
    assert (listener.exited["exitCode"], listener.exited["wasStarted"]) == (protocol.EXIT_STOPPED, False)
    assert not (runner.system_dir / "code" / "ran").exists()


@pytest.mark.acceptance
def test_stop_file_keeps_a_read_runner_from_starting(listener: FakeListener, runner: Runner) -> None:
    (runner.system_dir / "code").mkdir(parents=True)
    (runner.system_dir / protocol.PARAMETER_FILE).write_text("{}")
    (runner.system_dir / protocol.STOP_FILE).touch()
    ended = runner.run("touch ran", **{protocol.ENV_CHANNEL: protocol.PULL})
    assert ended.code == protocol.EXIT_STOPPED
    end = json.loads((runner.system_dir / protocol.EXIT_FILE).read_text())
    assert (end["pid"], end["exit_code"]) == (0, protocol.EXIT_STOPPED)
    assert not (runner.system_dir / "code" / "ran").exists()


class Posts:
    """A client whose second answer says that the job is cancelled."""

    takes_together = True

    def __init__(self, second: object) -> None:
        self.routes: list[str] = []
        self._second = second

    def post(self, route: str, _body: object) -> dict[str, Any]:
        self.routes.append(route)
        if route == "version":
            return {"accepted": True}
        if isinstance(self._second, Exception):
            raise self._second
        return {"stop": self._second}


@pytest.mark.parametrize(("second", "must_stop"), [(True, True), (False, False), (Unavailable("away"), False)])
def test_manager_is_asked_again_after_long_preparation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: object, must_stop: bool
) -> None:
    client = Posts(second)
    variables = {protocol.ENV_SYSTEM_DIR: str(tmp_path), protocol.ENV_COMMAND: "true", protocol.ENV_JOB: "j"}
    options = read({**variables, protocol.ENV_CHANNEL: protocol.EXEC})
    clients: list[Client] = [client]  # type: ignore[list-item]  # it stands in for one
    preparing = Preparation(options, clients, "c", {}, print)
    preparing.register()
    assert not preparing.must_stop(), "the registration's answer is fresh"
    monkeypatch.setattr(preparation, "_FRESH_S", -1.0)
    assert preparing.must_stop() is must_stop
    assert client.routes == ["version", "heartbeat"]


_REPORT = """echo '{"type": "intermediate", "value": 1}' >> $NNI_OUTBOX"""
