"""Promises of the run of all tests: a left child process fails its test, orders can be repeated, tests of machines are
skipped by name, and a failure in parallel is run again and named."""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import gate
from tests.fork_server.popen import take_interrupts

pytestmark = [
    pytest.mark.unit,
    pytest.mark.thorough,
    pytest.mark.timeout(180),
]  # each is a run of pytest, on a machine that may be busy

ROOT = Path(__file__).parents[2]
CHILDREN = """
import os, time
from trial_runner import processes

def test_leaves_a_zombie():
    if os.fork() == 0:
        os._exit(0)

def test_leaves_a_child():
    pid = os.fork()
    if pid == 0:
        os.execlp("sleep", "sleep", "1000")

def test_waits_for_its_child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

def test_meets_no_child_of_others():
    assert not processes.children(os.getpid())
"""

#: The third and later ones fail, in a random order.
ORDERED = """
import pytest
ran = []

@pytest.mark.parametrize("name", "abcdefgh")
def test_it(name):
    ran.append(name)
    assert len(ran) < 3, "".join(ran)
"""
#: Those without a mark or a shared fixture go to any worker.
GROUPED = """
import os, time
import pytest

@pytest.fixture(scope="module")
def shared():
    with open("starts", "a") as file:
        file.write("shared\\n")

@pytest.mark.parametrize("number", range(6))
def test_that_shares(shared, number):
    time.sleep(0.1)

@pytest.mark.group("marked")
@pytest.mark.parametrize("number", range(6))
def test_that_is_marked(number):
    time.sleep(0.1)
    with open("marked", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""
#: Each notes the worker that ran it.
LONG_AND_SHORT = """
import os, time
import pytest

def note(name):
    time.sleep(0.05)  # the other worker begins, too
    with open(os.environ["PYTEST_WORKER"], "a") as file:
        file.write(name)

@pytest.mark.unit
@pytest.mark.parametrize("number", range(20))
def test_short(number):
    note("s")

@pytest.mark.timeout(200)
def test_long():
    note("l")

@pytest.mark.parametrize("number", range(2))
def test_between(number):
    note("b")
"""
#: The first two run in parallel; `broken` fails alone, too.
UNSTEADY = """
import os
import pytest

def test_that_is_disturbed():
    assert "PYTEST_WORKER" not in os.environ

@pytest.mark.skipif(not os.path.exists("broken"), reason="not broken")
def test_that_is_broken():
    raise AssertionError

@pytest.mark.alone
def test_for_itself():
    assert "PYTEST_WORKER" not in os.environ
    open("alone", "w").close()
"""
#: The first takes its worker along, and the interruption is that of a user.
FATAL = """
import os, signal
import pytest

@pytest.mark.group("together")
@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if number == 1:
        os._exit(7)

@pytest.mark.parametrize("number", range(4))
def test_other(number):
    pass
"""
FATAL_LATER = """
import atexit, os

def test_it():
    atexit.register(os._exit, 7)
"""
INTERRUPTING = """
import os, signal, time
import pytest

@pytest.fixture(scope="session")
def kept():
    yield
    open("tidied", "w").close()

@pytest.mark.parametrize("number", range(50))
def test_it(kept, number):
    if number == 0:
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.1)
"""
#: Each notes that it ran; none is `alone`, which is not an error.
LONG = """
import pytest
from tests.thorough import besides

@pytest.mark.parametrize("name", ["once", *besides("again", "and-again")])
def test_it(name):
    open(name, "w").close()

@pytest.mark.thorough
def test_at_length():
    open("at-length", "w").close()

@pytest.mark.browser
def test_in_a_browser():
    open("in-a-browser", "w").close()
"""
MACHINE = """
import pytest

@pytest.mark.machines
def test_that_mounts():
    pass
"""


def run(folder: Path, text: str, *arguments: str) -> str:
    """What pytest says of these tests, with the fixtures and options of ours."""
    write(folder, text)
    return pytest_says(folder, "-q", *arguments)


def write(folder: Path, text: str) -> None:
    options = (ROOT / "pyproject.toml").read_text().replace('testpaths = ["tests"]', "")
    (folder / "pyproject.toml").write_text(options)
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "test_it.py").write_text(text)


def pytest_says(folder: Path, *arguments: str) -> str:
    return python_says(folder, "pytest", *arguments)[0]


def python_says(folder: Path, *arguments: str) -> tuple[str, int]:
    """What a module says, and its exit status."""
    # what is meant for the run around this one is not for it
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # a folder of its own: pytest ends by removing what earlier runs left in the usual one, which may take minutes
    own = {"PYTEST_ADDOPTS": f"--basetemp {shlex.quote(str(folder / 'tmp'))}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=170,
        env={**inherited, **own},
        preexec_fn=take_interrupts,
    )
    return done.stdout + done.stderr, done.returncode


def test_left_child_fails_its_own_test_alone(tmp_path: Path) -> None:
    said = run(tmp_path, CHILDREN)
    failed = set(re.findall(r"^ERROR \S+::(\w+)", said, re.MULTILINE))
    assert failed == {"test_leaves_a_zombie", "test_leaves_a_child"}, said
    assert "4 passed, 2 errors" in said
    assert "a zombie (Z)" in said and "sleep 1000 (S)" in said


def test_order_dependent_failure_can_be_repeated(tmp_path: Path) -> None:
    said = run(tmp_path, ORDERED, "--workers", "1")
    assert re.search(r"^order of the tests: --randomly-seed=\d+$", said, re.MULTILINE)
    again = re.findall(r"^what w\d ran up to its last failure, once more: python -m pytest (.+)$", said, re.MULTILINE)
    assert again
    failed = {line for command in again for line in _failures(pytest_says(tmp_path, *shlex.split(command)))}
    assert failed == _failures(said) and failed


def test_module_fixture_is_started_once(tmp_path: Path) -> None:
    assert "12 passed" in run(tmp_path, GROUPED, "--workers", "2")
    assert (tmp_path / "starts").read_text() == "shared\n"
    assert len(set((tmp_path / "marked").read_text().splitlines())) == 1


def test_longest_tests_begin_first_in_parallel(tmp_path: Path) -> None:
    assert "23 passed" in run(tmp_path, LONG_AND_SHORT, "--workers", "2")
    assert (tmp_path / "w0").read_text().startswith("s")
    assert (tmp_path / "w1").read_text().startswith("l")


def test_one_that_ends_its_worker_has_failed_and_the_others_run(tmp_path: Path) -> None:
    said = run(tmp_path, FATAL, "--workers", "1")
    assert "1 failed, 7 passed" in said, said
    assert "the process w0 that ran it ended with status 7" in said, said
    ran = (tmp_path / ".pytest_cache/order/w0").read_text().splitlines()
    assert ran[-1] == "test_it.py::test_it[1]", "what is said to be run once more has it, too"


def test_a_worker_that_fails_after_its_last_test_fails_the_run(tmp_path: Path) -> None:
    write(tmp_path, FATAL_LATER)
    said, status = python_says(tmp_path, "pytest", "-q", "--workers", "1")
    assert status != 0 and "w0 ended with status 7 after its last test" in said, said


def test_interrupted_run_tidies_up(tmp_path: Path) -> None:
    write(tmp_path, INTERRUPTING)
    said, status = python_says(tmp_path, "pytest", "-q", "--workers", "2", "-p", "no:randomly")
    assert status == 2 and "KeyboardInterrupt" in said and not re.search(r"\b50 passed", said), said
    assert (tmp_path / "tidied").exists()


def test_enough_failures_end_the_run(tmp_path: Path) -> None:
    said = run(tmp_path, ORDERED, "--workers", "1", "--maxfail", "1")
    assert "stopping after 1 failures" in said and "1 failed, 2 passed" in said, said


def test_collected_tests_are_frozen_for_garbage_collection() -> None:
    assert gc.isenabled() and gc.get_freeze_count() > 10_000


def test_machines_tests_are_skipped_by_name(tmp_path: Path) -> None:
    assert "test_that_mounts: run it with `make machines`" in run(tmp_path, MACHINE)
    said = run(tmp_path, MACHINE, "--machines", "--randomly-seed=7")
    assert "1 passed" in said and "once more" not in said
    assert "order of the tests: --randomly-seed=7" in said, "also when all is well"


@pytest.mark.parametrize("is_asked", [False, True])
def test_what_is_thorough_runs_when_it_is_asked_for(tmp_path: Path, is_asked: bool) -> None:
    write(tmp_path, LONG)
    said, status = python_says(tmp_path, "tests.gate", "--workers", "1", *["--thorough"] * is_asked)
    assert status == 0, said
    long = {"again", "and-again", "at-length", "in-a-browser"}
    assert {path.name for path in tmp_path.iterdir()} & {"once", *long} == (long if is_asked else {"once"}), said


def test_failure_in_parallel_is_rerun_and_named(tmp_path: Path) -> None:
    write(tmp_path, UNSTEADY)
    said, status = python_says(tmp_path, "tests.gate", "--workers", "1", "--beside", "echo judged")
    assert status == 0, said
    lines = said.splitlines()
    assert lines[-1] == gate.RERUN.format(test="test_it.py::test_that_is_disturbed"), said
    assert "once more, alone: test_it.py::test_that_is_disturbed" in lines and "judged" in lines, said
    assert (tmp_path / "alone").exists()


def test_repeated_failure_fails_the_run_and_the_rest_runs(tmp_path: Path) -> None:
    write(tmp_path, UNSTEADY)
    (tmp_path / "broken").touch()
    said, status = python_says(tmp_path, "tests.gate", "--workers", "1")
    assert status == 1 and "RERUN" not in said, said
    assert "1 failed, 1 passed" in said, "the second time"
    assert (tmp_path / "alone").exists()


def test_uncollectable_file_fails_the_run_at_once(tmp_path: Path) -> None:
    """Two files of one name, say: by itself each is read well, so that running it again would hide the fault."""
    write(tmp_path, UNSTEADY)
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_same.py").write_text("def test_it():\n    pass\n")
    said, status = python_says(tmp_path, "tests.gate", "--workers", "1", "--beside", "sleep 1000")
    assert status == 2 and "import file mismatch" in said and "RERUN" not in said, said
    assert not (tmp_path / "alone").exists()


def test_folders_of_tests_are_in_memory_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gate._TEMPROOT, raising=False)
    monkeypatch.setattr(gate, "_ROOM_BYTES", 0)
    with gate._in_memory():
        folder = Path(os.environ[gate._TEMPROOT])
        assert folder.is_dir() and folder.parent == Path(gate._MEMORY)
        (folder / "left").mkdir()
    assert gate._TEMPROOT not in os.environ and not folder.exists()
    monkeypatch.setattr(gate, "_ROOM_BYTES", 1 << 60)
    with gate._in_memory():
        assert gate._TEMPROOT not in os.environ


@pytest.mark.parametrize(
    ("failures", "first", "again", "alone", "beside", "status", "runs"),
    [
        (gate.MOST_RERUN, 1, 0, 0, 0, 0, 3),
        (gate.MOST_RERUN + 1, 1, 0, 0, 0, 1, 2),
        (1, 2, 0, 0, 0, 2, 1),  # a test that cannot be read, or an interruption
        (0, 0, 0, 1, 0, 1, 2),
        (0, 0, 0, 0, 3, 3, 2),
        (1, 1, 1, 0, 2, 2, 3),
    ],
)
def test_the_worst_part_is_the_exit_status(
    failures: int,
    first: int,
    again: int,
    alone: int,
    beside: int,
    status: int,
    runs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run, the one of what failed where there is one, and what runs alone."""
    kept = tmp_path / ".pytest_cache/v/cache/lastfailed"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({f"test_it.py::test_{number}": True for number in range(failures)}))
    (tmp_path / "test_slow.py").write_text("@pytest.mark.alone\n")
    (tmp_path / "test_quick.py").touch()
    asked: list[tuple[str, ...]] = []

    def pytest_ends(*arguments: str) -> int:
        asked.append(arguments)
        return first if len(asked) == 1 else again if "--last-failed" in arguments else alone

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gate, "_pytest", pytest_ends)
    assert gate.main(["--beside", f"sh -c 'exit {beside}'"]) == status
    assert len(asked) == runs and (runs == 1 or asked[-1] == ("-m", f"alone and not {gate._THOROUGH}", "test_slow.py"))


def _failures(said: str) -> set[str]:
    """With what had run before each."""
    return set(re.findall(r"^FAILED (.+)$", said, re.MULTILINE))
