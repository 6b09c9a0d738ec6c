"""All tests, as `make test` runs them: most of them beside each other, then those that want the machine for themselves.
Without those of `make thorough`, which runs them in the same way.

A test that failed beside others is run once more by itself. When it passes, it is wrong about time, or the product is:
the run goes on, and its closing lines name the test, as a fault to mend. A test that fails again fails the run, and so
do more failures than a few. What failed by itself is not run again.
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

#: A fault of the code fails more; each of these is run again.
MOST_RERUN = 5
RERUN = "RERUN {test}: failed beside others, passed alone: a fault to mend"
#: A file system in memory that each Linux has; where pytest makes its folders; and what must be free there.
_MEMORY, _TEMPROOT, _ROOM_BYTES = "/dev/shm", "PYTEST_DEBUG_TEMPROOT", 12 << 30
_PYTEST = (sys.executable, "-m", "pytest", "-q")
#: Exit status of pytest: some tests failed, and nothing else is wrong.
_TESTS_FAILED = 1
#: By somebody, or by tests that cannot be collected.
_INTERRUPTED = 2
#: Marks of the tests that `make thorough` runs, and `make test` does not.
_THOROUGH = "(thorough or browser or upstream)"
#: No test has the marks that were asked for.
_NO_TESTS = 5


def main(arguments: list[str] | None = None) -> int:
    """The worst exit status of all parts, after all of them ran; what cannot be collected ends the run at once, as a
    file does not come right alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="2", metavar="N", help="tests at a time (default: 2)")
    parser.add_argument(
        "--beside", metavar="COMMAND", help="runs beside the tests; its output is shown when they are over"
    )
    parser.add_argument("--thorough", action="store_true", help=f"those marked {_THOROUGH}, and not the others")
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
    """Tests' folders are where nothing is written to a disk, which is an eighth of what they cost; on machines without
    the room for that they are where pytest has them."""
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
    """For all that tests leave, several times."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    (available,) = (
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line
    )
    return shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES and int(available) * 1024 >= _ROOM_BYTES


def _run_beside_each_other(count: str, marks: str) -> tuple[int, list[str]]:
    """The exit status, and the tests that passed when they were run again."""
    # the cache has what failed in this run, and not what failed in others
    status = _pytest("--workers", count, "-m", marks, "--cache-clear")
    failed = _failed() if status == _TESTS_FAILED else []
    if not 0 < len(failed) <= MOST_RERUN:
        return status, []
    print(f"once more, alone: {', '.join(failed)}", flush=True)
    status = _pytest("--last-failed", "--last-failed-no-failures", "none", "-m", marks)
    return status, [] if status else failed


def _run_alone(marked: str) -> int:
    """The exit status. That there is none is no fault."""
    status = _pytest("-m", f"alone and {marked}", *_files_marked("alone"))
    return 0 if status == _NO_TESTS else status


def _failed() -> list[str]:
    """Names of tests, as pytest keeps them for `--last-failed`."""
    try:
        return sorted(json.loads(Path(".pytest_cache/v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def _files_marked(mark: str) -> list[str]:
    """Those where a test has it: reading thousands of tests to run a dozen takes longer than most of them."""
    files = [*Path().glob("test_*.py"), *Path("tests").rglob("test_*.py")]
    return sorted(str(file) for file in files if f"pytest.mark.{mark}" in file.read_text())


def _pytest(*arguments: str) -> int:
    return subprocess.run([*_PYTEST, *arguments]).returncode


@contextmanager
def _begun(command: str | None, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes] | None]:
    """The command's process; ended when this one is interrupted."""
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
    """The command's exit status, after all that it said was shown."""
    if process is None:
        return 0
    status = process.wait()
    output.seek(0)
    print(output.read().decode(errors="replace"), end="", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
