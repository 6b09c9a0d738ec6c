"""The tuner's process, a real one: its pipes, signals and log."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nni_manager.domain.errors import TunerDied, TunerNotStarted
from nni_manager.platform_kit.payload import TUNER_HOST
from nni_manager.scheduler.tuning import host
from nni_manager.scheduler.tuning.host import TunerHost
from tests.scheduler.tuner_requests import Message, item, start
from trial_runner.protocol import Decoder, encode
from trial_runner.tuner_host.process import STACK_FILE

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
#: What hosts our own algorithms; without it, users' classes.
OURS = ("-m", "nni_manager.scheduler.tuning.process")
STAND_IN = ROOT / "trial_runner" / "stand_in"


class Child:
    """The real process, its log a pipe."""

    def __init__(self, *what: str, environment: dict[str, str]) -> None:
        command = [sys.executable, *what]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **environment}, cwd=ROOT
        )
        self._decoder = Decoder()
        self._answers: list[Message] = []

    def send(self, *requests: Message) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"".join(encode({"id": number, **one}) for number, one in enumerate(requests)))
        self.process.stdin.flush()

    def receive(self) -> Message:
        assert self.process.stdout
        while not self._answers:
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.log()
            self._answers += self._decoder.feed(data)
        return self._answers.pop(0)

    def ask(self, **request: Any) -> Message:
        self.send(request)
        return self.receive()

    def log_until(self, words: bytes) -> bytes:
        assert self.process.stderr
        log = b""
        while words not in log:
            data = os.read(self.process.stderr.fileno(), 65536)
            assert data, log
            log += data
        return log

    def log(self) -> str:
        """Ends it; answers what is left of its log."""
        _, log = self.process.communicate(timeout=20)
        return log.decode()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def open_(*what: str, **environment: str) -> Child:
        children.append(Child(*(what or (TUNER_HOST,)), environment={"PYTHONPATH": str(STAND_IN), **environment}))
        return children[-1]

    yield open_
    for one in children:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def user_tuner(folder: Path, body: str, name: str = "mine") -> Message:
    """A tuner class with this body of `generate_parameters`."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (folder / f"{name}.py").write_text(
        "import os, subprocess, sys, threading\n"
        "from nni.tuner import Tuner\n"
        "from nni import NoMoreTrialError\n"
        "class Mine(Tuner):\n"
        "    def update_search_space(self, search_space): pass\n"
        "    def receive_trial_result(self, parameter_id, parameters, value, **kwargs): pass\n"
        f"    def generate_parameters(self, parameter_id, **kwargs):\n{lines}\n"
    )
    return {"class_name": f"{name}.Mine", "code_directory": str(folder)}


def test_batched_requests_are_answered_in_order(child: Callable[..., Child]) -> None:
    tuner = child(*OURS)
    tuner.send(start(), {"verb": "propose", "ids": [0]}, {"verb": "dance"}, {"verb": "state"})
    answers = [tuner.receive() for _ in range(4)]
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3]
    assert ["result" in answer for answer in answers] == [True, True, False, True]
    log = tuner.log()
    assert tuner.process.returncode == 0
    assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] INFO \(tuner_host\) tuner started", log)
    assert "ERROR (tuner_host) dance failed\nTraceback" in log


def test_user_class_cannot_break_the_pipes(child: Callable[..., Child], tmp_path: Path) -> None:
    body = (
        "print('by print')\n"
        "os.write(1, b'by write' + bytes([10]))\n"
        "subprocess.run(['echo', 'by a child'])\n"
        "return {'read': sys.stdin.read()}"
    )
    tuner = child()
    tuner.ask(**start(tuner=user_tuner(tmp_path, body)))
    answer = tuner.ask(verb="propose", ids=[0])
    assert answer["result"]["proposals"] == [{"parameter_id": 0, "parameters": {"read": ""}}]
    log = tuner.log()
    assert all(words in log for words in ("by print", "by write", "by a child"))


def test_proposal_can_wait_for_result_of_other_trial(child: Callable[..., Child], tmp_path: Path) -> None:
    """With `multiThread`; the process answers meanwhile, and says when the proposal is ready."""
    body = (
        "if parameter_id == 2: raise NoMoreTrialError()\n"
        "while parameter_id == 1 and not hasattr(self, 'told'): threading.Event().wait(0.01)\n"
        "return {'x': getattr(self, 'told', parameter_id)}"
    )
    code = user_tuner(tmp_path, body)
    module = tmp_path / "mine.py"
    module.write_text(module.read_text().replace("value, **kwargs): pass", "value, **kwargs): self.told = value"))
    tuner = child()
    assert "result" in tuner.ask(**start(tuner={**code, "multi_thread": True}))
    made: list[Message] = []
    owed = 3

    def receive() -> None:
        nonlocal owed
        message = tuner.receive()
        if "event" in message:
            tuner.send({"verb": "propose", "ids": []})
        else:
            made.extend(message["result"].get("proposals", ()))
            owed = message["result"].get("owed", 0) if "proposals" in message["result"] else owed

    tuner.send({"verb": "propose", "ids": [0, 1, 2]})
    while owed > 1:
        receive()
    assert made == [{"parameter_id": 0, "parameters": {"x": 0}}]
    tuner.send({"verb": "learn", "results": [item(0, 7, {"x": 0})]})
    while owed:
        receive()
    assert made[1:] == [{"parameter_id": 1, "parameters": {"x": 7}}]


def test_error_in_a_thread_is_that_of_the_next_request(child: Callable[..., Child], tmp_path: Path) -> None:
    code = user_tuner(tmp_path, "raise ValueError('a mistake')")
    tuner = child()
    tuner.ask(**start(tuner={**code, "multi_thread": True}))
    answer = tuner.ask(verb="propose", ids=[0])
    while "error" not in answer:
        answer = tuner.receive() if "event" in answer else tuner.ask(verb="propose", ids=[])
    assert "ValueError: a mistake" in answer["error"]["message"]
    assert "generate_parameters" in answer["error"]["details"]


def test_host_survives_an_exception_of_a_user_class(child: Callable[..., Child], tmp_path: Path) -> None:
    body = (
        "if parameter_id == 0: raise ValueError('a mistake')\n"
        "if parameter_id == 1: sys.exit(3)\n"
        "if parameter_id == 2: return {1, 2}\n"
        "if parameter_id == 3: raise NoMoreTrialError()\n"
        "return {'x': parameter_id}"
    )
    tuner = child()
    answer = tuner.ask(**start(tuner=user_tuner(tmp_path, body)))["result"]
    assert answer == {"proposes_ahead": False, "watches": False, "withdraws": False}
    error = tuner.ask(verb="propose", ids=[0])["error"]
    assert (error["kind"], error["message"]) == ("raised", "ValueError: a mistake")
    assert "in generate_parameters" in error["details"] and "mine.py" in error["details"]
    assert tuner.ask(verb="propose", ids=[1])["error"]["message"] == "SystemExit: 3"
    assert "not JSON serializable" in tuner.ask(verb="propose", ids=[2])["error"]["message"]
    assert tuner.ask(verb="propose", ids=[3])["result"] == {"proposals": [], "exhausted": False}
    assert tuner.ask(verb="propose", ids=[4])["result"]["proposals"][0]["parameters"] == {"x": 4}
    assert "ValueError: a mistake" in tuner.log()


def test_classes_written_for_nni_run_unchanged(child: Callable[..., Child], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from nni.assessor import Assessor, AssessResult\n"
        "from nni.utils import extract_scalar_reward\n"
        "class Strict(Assessor):\n"
        "    def __init__(self, limit): self.limit = limit\n"
        "    def assess_trial(self, trial_job_id, trial_history):\n"
        "        good = extract_scalar_reward(trial_history[-1]) >= self.limit\n"
        "        return AssessResult.Good if good else AssessResult.Bad\n"
    )
    assessor = {"class_name": "mine.Strict", "code_directory": str(tmp_path), "class_args": {"limit": 2}}
    tuner = child()
    own = user_tuner(tmp_path, "return {'x': parameter_id}", name="own")
    tuner.ask(**start(tuner=own, assessor=assessor, history=[item(0, 1, intermediates=[5])]))
    trials = [{"trial_id": "a", "values": [3, {"default": 1}], "from": 0}, {"trial_id": "b", "values": [2], "from": 0}]
    assert tuner.ask(verb="judge", trials=trials)["result"] == {"stop": ["a"]}
    assert tuner.ask(verb="learn", results=[item(1, 1, intermediates=[3, 1])])["result"] == {}


SAVING = """
import os
from nni.assessor import Assessor, AssessResult
from nni.tuner import Tuner
class Saves:
    def load_checkpoint(self): print(type(self).__name__, "loads", sorted(os.listdir(self.get_checkpoint_path())))
    def _on_exit(self):
        open(os.path.join(self.get_checkpoint_path(), type(self).__name__), "w").close()
        raise OSError("too late")
class T(Saves, Tuner):
    def update_search_space(self, search_space): print("space")
    def generate_parameters(self, parameter_id, **kwargs): return {}
    def receive_trial_result(self, parameter_id, parameters, value, **kwargs): pass
class A(Saves, Assessor):
    def assess_trial(self, trial_job_id, trial_history): return AssessResult.Good
"""


def test_user_class_saves_and_loads_a_checkpoint(child: Callable[..., Child], tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVING)
    saved = tmp_path / "checkpoint"
    saved.mkdir()
    both = {
        kind: {"class_name": f"saves.{kind[0].upper()}", "code_directory": str(tmp_path)}
        for kind in ("tuner", "assessor")
    }
    first = child(NNI_CHECKPOINT_DIRECTORY=str(saved))
    first.ask(**start(**both))
    assert "loads" not in first.log() and first.process.returncode == 0
    second = child(NNI_CHECKPOINT_DIRECTORY=str(saved))
    second.ask(**start(**both, history=[item(0, 1)]))
    log = second.log()
    assert "T loads ['A', 'T']" in log and log.index("A loads") < log.index("space")
    assert log.count("OSError: too late") == 2


def test_a_hanging_call_shows_its_stack(child: Callable[..., Child], tmp_path: Path) -> None:
    hanging, release, stacks = tmp_path / "hanging", tmp_path / "release", tmp_path / "stacks"
    os.mkfifo(hanging)
    os.mkfifo(release)
    # opening a pipe waits for its other end
    body = f"open({str(hanging)!r}, 'w').close()\nreturn {{'x': open({str(release)!r}).read()}}"
    tuner = child(**{STACK_FILE: str(stacks)})
    tuner.ask(**start(tuner=user_tuner(tmp_path, body)))
    tuner.send({"verb": "propose", "ids": [0]})
    hanging.read_bytes()
    tuner.process.send_signal(signal.SIGINT)
    tuner.process.send_signal(signal.SIGUSR1)
    tuner.log_until(b"in generate_parameters")
    shown = _text_with(stacks, "in _propose")  # it is written in pieces, perhaps after the log
    assert "in generate_parameters" in shown
    release.write_text("free")
    assert tuner.receive()["result"]["proposals"][0]["parameters"] == {"x": "free"}
    tuner.ask(verb="state")
    assert stacks.read_text() == ""


def _text_with(path: Path, words: str) -> str:
    deadline = time.monotonic() + 5
    while words not in (text := path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert words in text
    return text


def test_without_a_stack_file_the_log_has_the_stack(child: Callable[..., Child]) -> None:
    tuner = child(*OURS)
    tuner.ask(**start())
    tuner.process.send_signal(signal.SIGUSR1)
    assert b"process.py" in tuner.log_until(b"in serve")
    assert "result" in tuner.ask(verb="state")


def test_ctrl_c_is_not_for_it(child: Callable[..., Child]) -> None:
    tuner = child(*OURS)
    tuner.ask(**start())
    tuner.process.send_signal(signal.SIGINT)
    assert "result" in tuner.ask(verb="state")
    assert "KeyboardInterrupt" not in tuner.log() and tuner.process.returncode == 0


def test_a_thread_left_running_does_not_keep_it(child: Callable[..., Child], tmp_path: Path) -> None:
    body = "threading.Thread(target=threading.Event().wait).start()\nreturn {}"
    tuner = child()
    tuner.ask(**start(tuner=user_tuner(tmp_path, body)))
    tuner.ask(verb="propose", ids=[0])
    tuner.log()
    assert tuner.process.returncode == 0


@pytest.mark.parametrize("name", ["Random", "GridSearch", "TPE"])
def test_first_trials_import_no_heavy_packages(name: str) -> None:
    """Nor our records of experiments and trials, which are half of what the process would take to start."""
    records = {"nni_manager.domain.experiment", "nni_manager.domain.trial", "nni_manager.domain.attempt"}
    heavy = {"asyncio", "numpy", "optuna", "pydantic", *records}
    code = (
        "import sys\n"
        "from nni_manager.scheduler.tuning.process import own_verbs\n"
        f"verbs = own_verbs(); verbs.answer({start(tuner={'name': name})!r} | {{'id': 0}})\n"
        "assert b'proposals' in verbs.answer({'id': 1, 'verb': 'propose', 'ids': [0]})\n"
        f"sys.exit(', '.join({heavy!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(10)
async def test_a_pipe_in_place_of_its_log_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dispatcher.log")
    with pytest.raises(TunerDied, match="not a regular file"):
        await TunerHost.start(
            command=[sys.executable, *OURS],
            environment={},
            directory=tmp_path,
            folder=tmp_path,
            log_folder=tmp_path,
            gpus="",
        )


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, -1])
async def test_failed_fork_does_not_end_tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    shown = errno.EMFILE if code == -1 else code  # the event loop's own number
    with pytest.raises(TunerNotStarted, match=re.escape(os.strerror(shown))):
        await TunerHost.start(
            command=["python"], environment={}, directory=tmp_path, folder=tmp_path, log_folder=tmp_path, gpus=""
        )


def test_own_tuners_use_one_thread_by_default() -> None:
    """On small matrices several threads wait for each other."""
    assert host._for_our_python({"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"
    assert host._for_our_python({})["OPENBLAS_NUM_THREADS"] == "1"
