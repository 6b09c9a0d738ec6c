"""Tuners and assessors that raise, hang or die: the experiment reports it, running trials finish, and it continues."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nni_manager.platform_kit.payload import TUNER_HOST
from tests.acceptance import trial_notes
from tests.live_daemon import PYTHON, Daemon, assert_gone, picked, processes_of, running_daemon
from tests.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.group("tuner_faults")]

State = dict[str, Any]


class Bench:
    """An experiment of gated trials, with helpers."""

    def __init__(self, daemon: Daemon, code: Path, root: Path) -> None:
        self.daemon = daemon
        self.code = code
        self.notes, self.hosts, self.gates = root / "trials.jsonl", root / "hosts", root / "gates"
        self.hosts.mkdir()
        self.gates.mkdir()
        self.tuner = code / "note_tuner.py"
        self.good_tuner = self.tuner.read_text()
        self.id = ""

    def start(self, **more: Any) -> None:
        fields: dict[str, Any] = {"trials": 6, "steps": 0, "pause_s": 0, "tuner": trial_notes.noting_tuner(self.hosts)}
        config = trial_notes.config(**fields | {"trialCommand": f"{PYTHON} gated.py", "trialConcurrency": 2} | more)
        self.id = self.daemon.create(config, self.code, {"TRIAL_NOTES": str(self.notes), "GATES": str(self.gates)})

    def close(self) -> None:
        """Stop the trials, to free the processors for the next test."""
        if self.id:
            self.daemon.call("POST", f"/experiments/{self.id}/stop")

    def open_gate(self, *names: object) -> None:
        for name in names:
            (self.gates / str(name)).touch()

    def mend(self) -> None:
        self.tuner.write_text(self.good_tuner)

    def resume(self) -> None:
        self.daemon.call("POST", f"/experiments/{self.id}/resume")

    def wait_for_hold(self, code: str) -> State:
        state = self.daemon.wait_for(self.id, lambda state: state["hold"] is not None)
        assert state["hold"]["code"] == code
        assert state["hold"]["sentence"] in state["errors"]
        return state

    def wait_for_count(self, **counts: int) -> State:
        return self.daemon.wait_for(
            self.id, lambda state: all(state["counts"].get(status, 0) == count for status, count in counts.items())
        )

    def check_end(self, trials: int = 6) -> None:
        """Check that all trials succeeded, and that the last tuner process knows every result."""
        state = self.daemon.wait(self.id, "DONE")
        assert (state["hold"], state["errors"], state["counts"]) == (None, [], {"SUCCEEDED": trials})
        trial_notes.check_results(self.daemon, self.id, self.notes)
        trial_notes.check_tuners(self.hosts, trials)

    def tuner_processes(self) -> list[psutil.Process]:
        of_experiment = processes_of(str(self.daemon.data / self.id / "checkpoint"))
        return [process for process in of_experiment if TUNER_HOST in process.cmdline()]


@pytest.fixture
def bench(shared: Daemon, code: Path, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(shared, code, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def own(daemon: Daemon, code: Path, tmp_path: Path) -> Bench:
    """A bench with its own daemon, which may end."""
    return Bench(daemon, code, tmp_path)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A bench whose daemon reports a silent tuner after a second."""
    folder = tmp_path_factory.mktemp("hasty")
    with running_daemon(folder, environment={"NNI_MANAGER_TUNER_PATIENCE": "1s"}) as daemon:
        yield daemon


@pytest.fixture
def impatient(hasty: Daemon, code: Path, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(hasty, code, tmp_path)
    yield bench
    bench.close()


# Killed


def test_tuner_that_dies_once_is_restarted(bench: Bench) -> None:
    bench.start(trials=20, trialConcurrency=4)
    bench.open_gate(*range(8))
    bench.wait_for_count(SUCCEEDED=8)
    _kill_tuner(bench, -1)
    bench.open_gate("all")
    holds = []
    bench.daemon.wait_for(bench.id, lambda state: holds.append(state["hold"]) or state["status"] == "DONE")
    assert set(holds) == {None}
    assert len(list(bench.hosts.glob("*.jsonl"))) == 2, "another process was told the results"
    bench.check_end(20)


def test_third_tuner_death_causes_a_hold_until_resume(bench: Bench) -> None:
    bench.start(trials=30, trialConcurrency=3)
    pid = -1
    for number in range(3):
        bench.daemon.wait_for(bench.id, lambda state, n=number: state["counts"].get("SUCCEEDED", 0) >= n)
        pid = _kill_tuner(bench, pid)
        bench.open_gate(number)
    state = bench.wait_for_hold("TUNER_DIED")
    assert "SIGKILL" in state["hold"]["sentence"]
    assert "3 times" in state["hold"]["sentence"]
    made = state["trialsMade"]
    bench.open_gate("all")
    assert bench.wait_for_count(RUNNING=0, WAITING=0)["counts"] == {"SUCCEEDED": made}
    bench.resume()
    bench.check_end(30)


def test_tuner_is_restarted_after_a_shortage_of_files(own: Bench) -> None:
    own.start(trials=20, trialConcurrency=4)
    own.open_gate(*range(4))
    own.wait_for_count(SUCCEEDED=4)
    assert own.daemon.process is not None
    daemon = psutil.Process(own.daemon.process.pid)
    limits = daemon.rlimit(psutil.RLIMIT_NOFILE)
    daemon.rlimit(psutil.RLIMIT_NOFILE, (daemon.num_fds(), limits[1]))
    try:
        _kill_tuner(own, -1)
        own.open_gate("all")
        until(lambda: "retrying until it succeeds" in own.daemon.log())
        assert "Too many open files" in own.daemon.log()
    finally:
        daemon.rlimit(psutil.RLIMIT_NOFILE, limits)
    own.check_end(20)


def test_tuner_without_threads_is_started_again(own: Bench, tmp_path: Path) -> None:
    """While other programs of the user take all threads. The process of the tuner ends before its first answer."""
    short = tmp_path / "short"
    short.touch()
    dying = (
        "self.path = ",
        f"import os, sys\n        if os.path.exists({str(short)!r}):\n"
        '            os.write(2, b"RuntimeError: can\'t start new thread")\n'
        "            os._exit(1)\n        self.path = ",
    )
    own.tuner.write_text(own.good_tuner.replace(*dying))
    own.start(trials=3)
    own.open_gate("all")
    own.wait_for_hold("TUNER_SILENT")
    log = own.daemon.data / own.id / "log" / "dispatcher.log"
    until(lambda: log.read_text().count("can't start new thread") > 3)  # three deaths would be a hold for good
    short.unlink()
    own.check_end(3)


def _kill_tuner(bench: Bench, but: int) -> int:
    """Kill the tuner's process when it differs from `but`; returns its pid."""
    found = until(lambda: next((p for p in bench.tuner_processes() if p.pid != but), None))
    found.kill()
    found.wait(5)
    return int(found.pid)


# Raising

RAISING = {
    "at construction": (
        lambda text: text.replace("self.path = ", "raise KeyError('no such thing')\n        self.path = "),
        "KeyError: 'no such thing'",
        0,
    ),
    "in generate_parameters": (
        lambda text: text.replace("return {", "assert parameter_id < 3, 'out of ideas'\n        return {"),
        "AssertionError: out of ideas",
        3,
    ),
    "in receive_trial_result": (
        lambda text: text.replace("self._note(x=parameters", "1 / (parameter_id < 2)\n        self._note(x=parameters"),
        "ZeroDivisionError",
        3,
    ),
    "by sys.exit": (
        lambda text: text.replace("return {", "if parameter_id > 2: raise SystemExit(7)\n        return {"),
        "SystemExit: 7",
        3,
    ),
}


@pytest.mark.parametrize("fault", RAISING)
def test_raising_tuner_causes_a_hold_with_its_traceback(bench: Bench, fault: str) -> None:
    spoil, words, made = RAISING[fault]
    bench.tuner.write_text(spoil(bench.good_tuner))
    assert bench.tuner.read_text() != bench.good_tuner
    bench.start()
    bench.open_gate(0, 2)
    state = bench.wait_for_hold("TUNER_RAISED")
    assert words in state["hold"]["sentence"]
    assert "Traceback" in state["hold"]["details"]
    assert "note_tuner" in state["hold"]["details"]
    assert words in bench.daemon.status(bench.id)["errors"][0]
    if made:
        bench.wait_for_count(SUCCEEDED=made - 1, RUNNING=1)
        bench.open_gate(1)
        assert bench.wait_for_count(RUNNING=0)["counts"] == {"SUCCEEDED": made}
    assert bench.daemon.status(bench.id)["trialsMade"] == made
    assert bench.daemon.status(bench.id)["status"] == "RUNNING"
    bench.mend()
    bench.open_gate("all")
    bench.resume()
    bench.check_end()


def test_resuming_an_unfixed_tuner_causes_a_hold_again(own: Bench) -> None:
    """Its module was valid at creation, and is broken now."""
    bench = own
    bench.start()
    bench.wait_for_count(RUNNING=2)
    bench.tuner.write_text("import surely_not_installed\n" + bench.good_tuner)
    _kill_tuner(bench, but=0)
    bench.open_gate(0)
    state = bench.wait_for_hold("TUNER_RAISED")
    assert "No module named 'surely_not_installed'" in state["hold"]["sentence"]
    assert "Traceback" in state["hold"]["details"]
    bench.resume()
    bench.wait_for_hold("TUNER_RAISED")
    assert bench.daemon.terminate() == 0
    bench.daemon.start()
    assert bench.daemon.status(bench.id)["hold"]["code"] == "TUNER_RAISED", "a hold outlives the daemon"


def test_raising_assessor_causes_a_hold(bench: Bench) -> None:
    assessor = bench.code / "fussy_assessor.py"
    good = assessor.read_text()
    assessor.write_text(
        good.replace("return AssessResult", "trial_history.no_such_method()\n        return AssessResult")
    )
    bench.start(assessor={"className": "fussy_assessor.FussyAssessor", "codeDirectory": "."})
    state = bench.wait_for_hold("TUNER_RAISED")
    assert "no_such_method" in state["hold"]["sentence"]
    assert "fussy_assessor.py" in state["hold"]["details"]
    bench.open_gate("all")
    bench.wait_for_count(RUNNING=0, WAITING=0)
    assessor.write_text(good)
    bench.resume()
    bench.check_end()


# Silent

HANGS = {
    "in Python": "import threading; threading.Event().wait()  # for ever",
    "in C, holding the interpreter": "import re; re.match(r'(a|a)*$', 'a' * 100 + 'b')  # for ever",
}


def test_silent_tuner_causes_a_hold_that_ends_automatically(impatient: Bench) -> None:
    bench, answer = impatient, impatient.gates / "answer"
    bench.tuner.write_text(
        bench.good_tuner.replace(
            "return {",
            f"import time\n        while parameter_id > 1 and not os.path.exists({str(answer)!r}):\n"
            "            time.sleep(0.01)  # thinks\n        return {",
        )
    )
    bench.start()
    bench.open_gate(0)
    bench.wait_for_hold("TUNER_SILENT")
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"] is None or state["hold"]["details"])
    assert "generate_parameters" in state["hold"]["details"]
    assert _line_of(bench.tuner, "# thinks") in state["hold"]["details"]
    assert bench.wait_for_count(SUCCEEDED=1)["counts"]["RUNNING"] == 1, "running trials go on"
    answer.touch()
    bench.open_gate("all")
    bench.check_end()


@pytest.mark.parametrize("hang", HANGS)
def test_resume_ends_a_hanging_tuner(impatient: Bench, hang: str) -> None:
    bench = impatient
    _hang(bench, hang)
    state = bench.daemon.wait_for(bench.id, lambda state: state["hold"] and state["hold"]["details"])
    assert state["hold"]["code"] == "TUNER_SILENT"
    assert _line_of(bench.tuner, "# for ever") in state["hold"]["details"]
    (old,) = bench.tuner_processes()
    bench.mend()
    bench.open_gate("all")
    began = time.monotonic()
    bench.resume()
    assert time.monotonic() - began < 2
    assert not old.is_running() or old.status() == psutil.STATUS_ZOMBIE
    bench.check_end()


@pytest.mark.alone
@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_daemon_ends_while_the_tuner_hangs(own: Bench, hang: str, number: signal.Signals) -> None:
    bench = own
    _hang(bench, hang)
    until(bench.tuner_processes)
    _wait_for_hang(bench)
    assert bench.daemon.process is not None
    began = time.monotonic()
    bench.daemon.process.send_signal(number)
    code = bench.daemon.process.wait(10)
    assert time.monotonic() - began < 3
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    assert psutil.wait_procs(bench.tuner_processes(), timeout=2)[1] == []
    bench.mend()
    bench.open_gate("all")
    bench.daemon.start()
    bench.check_end()


def _hang(bench: Bench, hang: str) -> None:
    """Start an experiment whose tuner hangs at the third proposal."""
    mark = bench.gates / "hangs"
    bench.tuner.write_text(
        bench.good_tuner.replace(
            "return {",
            f"if parameter_id > 1:\n            open({str(mark)!r}, 'w').close()\n            {HANGS[hang]}\n"
            "        return {",
        )
    )
    bench.start()
    bench.open_gate(0)


def _wait_for_hang(bench: Bench) -> None:
    until((bench.gates / "hangs").exists)


def _line_of(path: Path, words: str) -> str:
    """The line as a stack trace names it."""
    (number,) = [n for n, line in enumerate(path.read_text().splitlines(), 1) if words in line]
    return f'File "{path}", line {number} in '


# Medianstop


def test_medianstop_ends_bad_trials_early(shared: Daemon, code: Path, tmp_path: Path) -> None:
    notes = tmp_path / "tuner.jsonl"
    values = [0.8, 0.9, 0.95, 0.1, 0.2, 1.0]
    config = trial_notes.config(
        trials=6,
        steps=0,
        pause_s=0,
        trialConcurrency=1,
        trialCommand=f"{PYTHON} curve.py 20 0.05",
        tuner={
            "className": "listed_tuner.ListedTuner",
            "codeDirectory": ".",
            "classArgs": {"values": values, "notes": str(notes)},
        },
        assessor={"name": "Medianstop", "classArgs": {"optimize_mode": "maximize", "start_step": 3}},
    )
    id_ = shared.create(config, code)
    shared.wait(id_, "DONE")
    rows = picked(shared.trials(id_), "status", "reason", "intermediates", "finalValue")
    statuses = [(status, reason) for status, reason, _, _ in rows]
    good, bad = ("SUCCEEDED", None), ("EARLY_STOPPED", "ASSESSOR")
    assert statuses == [good, good, good, bad, bad, good]
    assert all(3 <= steps < 20 and final is None for status, _, steps, final in rows if status == bad[0])
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [note["ended"] for note in told if "ended" in note] == list(range(6))
    assert [note["ended"] for note in told if note.get("success")] == [0, 1, 2, 5]
    assert [note["learned"] for note in told if "learned" in note] == [0, 1, 2, 5]
    shared.call("POST", f"/experiments/{id_}/stop")
    assert_gone(str(shared.data / id_))


WORKERS = """
import os, random
from multiprocessing import Process
from subprocess import Popen
from time import sleep
from nni.tuner import Tuner

class Workers(Tuner):
    def __init__(self):
        self.workers = [Process(target=sleep, args=(1000,), daemon=True)]
        self.workers[0].start()
        Popen(["sleep", "1000"], start_new_session=True)
    def update_search_space(self, space): pass
    def generate_parameters(self, number, **options): return {"x": random.random()}
    def receive_trial_result(self, *arguments, **options): pass
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_child_processes_of_a_tuner_end_with_it(daemon: Daemon, code: Path, is_killed: bool) -> None:
    """Including processes in another session, and workers that outlived a killed daemon without noticing."""
    (code / "workers.py").write_text(WORKERS)
    tuner = {"className": "workers.Workers", "codeDirectory": "."}
    config = trial_notes.config(trials=9, steps=1, pause_s=0, tuner=tuner, trialCommand="exec sleep 1000")
    id_ = daemon.create(config, code)
    daemon.wait_for(id_, lambda state: state["counts"].get("RUNNING"))
    mark = f"{daemon.data / id_ / 'log'}:"
    before = processes_of(mark)
    assert len(before) >= 3, "the tuner, its worker, and what it let go"
    if is_killed:
        daemon.kill()
        daemon.start()
        _, alive = psutil.wait_procs(before, timeout=20)
        assert alive == []
    daemon.call("POST", f"/experiments/{id_}/stop")
    assert daemon.terminate() == 0
    assert_gone(str(daemon.data))
