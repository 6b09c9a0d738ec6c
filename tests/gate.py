"""Run all tests as `make test` does: most of them in parallel, then those that need the machine for themselves.
Tests of `make thorough` are excluded; that target runs them in the same way.

A test that fails in parallel is repeated once, alone. If it then passes, it or the product has a timing bug: the run
continues, and its last lines name the test. A test that fails again fails the run, and so do more than a few failures.
A test that fails alone is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: Maximum number of failures that are repeated; a bug in the code usually causes more.
MOST_RERUN = 5
RERUN = "RERUN {test}: failed in parallel, passed alone; fix its timing bug"
#: The in-memory file system of Linux; pytest's base folder in it; and the free space that it needs.
_MEMORY, _TEMPROOT, _ROOM_BYTES = "/dev/shm", "PYTEST_DEBUG_TEMPROOT", 12 << 30
_PYTEST = (sys.executable, "-m", "pytest", "-q")
#: Exit status of pytest: some tests failed, without other errors.
_TESTS_FAILED = 1
#: Exit status of pytest: interrupted, or a collection error.
_INTERRUPTED = 2
#: Marks of the tests that only `make thorough` runs.
_THOROUGH = "(thorough or browser or upstream)"
#: Exit status of pytest: no test has the requested marks.
_NO_TESTS = 5


def main(arguments: list[str] | None = None) -> int:
    """Run all parts and return the worst exit status. Collection errors end the run at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="2", metavar="N", help="number of parallel tests (default: 2)")
    parser.add_argument(
        "--beside", metavar="COMMAND", help="command to run in parallel with the tests; its output is shown at the end"
    )
    parser.add_argument("--thorough", action="store_true", help=f"only tests marked {_THOROUGH}")
    asked = parser.parse_args(arguments)
    marked = _THOROUGH if asked.thorough else f"not {_THOROUGH}"
    with tempfile.TemporaryFile() as output, _begun(asked.beside, output) as other:
        with _in_memory():
            beside, rerun = _run_beside_each_other(asked.workers, f"not alone and {marked}")
        if beside == _INTERRUPTED:
            if other is not None:
                other.terminate()
            return beside
        alone = _run_alone(marked)
        command = _end_of(other, output)
    print("".join(f"{RERUN.format(test=test)}\n" for test in rerun), end="", flush=True)
    return max(beside, alone, command)


@contextmanager
def _in_memory() -> Iterator[None]:
    """Options that put the tests' folders into memory, which saves an eighth of their time.

    Without enough free space, pytest's default is used.
    """
    if _TEMPROOT in os.environ or not _has_room():
        yield
        return
    folder = tempfile.mkdtemp(prefix="nni-tests-", dir=_MEMORY)
    os.environ[_TEMPROOT] = folder
    try:
        yield
    finally:
        del os.environ[_TEMPROOT]
        subprocess.run(["rm", "-rf", folder])


def _has_room() -> bool:
    """Whether the space suffices several times for everything that tests leave."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    (available,) = (
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line
    )
    return shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES and int(available) * 1024 >= _ROOM_BYTES


def _run_beside_each_other(count: str, marks: str) -> tuple[int, list[str]]:
    """The exit status, and the tests that passed when they were repeated."""
    # the cache then contains only the failures of this run
    status = _pytest("--workers", count, "-m", marks, "--cache-clear")
    failed = _failed() if status == _TESTS_FAILED else []
    if not 0 < len(failed) <= MOST_RERUN:
        return status, []
    print(f"once more, alone: {', '.join(failed)}", flush=True)
    status = _pytest("--last-failed", "--last-failed-no-failures", "none", "-m", marks)
    return status, [] if status else failed


def _run_alone(marked: str) -> int:
    """The exit status; 0 without such tests."""
    status = _pytest("-m", f"alone and {marked}", *_files_marked("alone"))
    return 0 if status == _NO_TESTS else status


def _failed() -> list[str]:
    """Names of tests, as pytest stores them for `--last-failed`."""
    try:
        return sorted(json.loads(Path(".pytest_cache/v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def _files_marked(mark: str) -> list[str]:
    """Files with such tests. Collecting thousands of tests to run a dozen takes longer than most of them."""
    files = [*Path().glob("test_*.py"), *Path("tests").rglob("test_*.py")]
    return sorted(str(file) for file in files if f"pytest.mark.{mark}" in file.read_text())


def _pytest(*arguments: str) -> int:
    return subprocess.run([*_PYTEST, *arguments]).returncode


@contextmanager
def _begun(command: str | None, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes] | None]:
    """The command's process; it ends if this one is interrupted."""
    if command is None:
        yield None
        return
    with subprocess.Popen(shlex.split(command), stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            raise


def _end_of(process: subprocess.Popen[bytes] | None, output: IO[bytes]) -> int:
    """Show the command's output and return its exit status."""
    if process is None:
        return 0
    status = process.wait()
    output.seek(0)
    print(output.read().decode(errors="replace"), end="", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
