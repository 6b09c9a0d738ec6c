"""The `python3` of trials: the interpreter on PATH, without packages and without wrappers.

A version manager's `python3` is a shell script that searches for the real one, and an interpreter with many packages
reads their start files. Thousands of starts would multiply that cost. An interpreter without packages also shows, like
a container, that the code we send needs none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: Variable with the folder of this run's interpreters; workers inherit it.
_VARIABLE = "NNI_TESTS_BARE_PYTHON"
#: Interpreters that this process created.
_made: list[Path] = []
_WHERE = "import os, sys; print(os.path.realpath(sys.executable))"


def own() -> str:
    """This Python without packages; outside a test run, without those of its virtual environment."""
    folder = os.environ.get(_VARIABLE)
    return f"{folder}/own/bin/python3" if folder else os.path.realpath(sys.executable)


def make() -> None:
    """Set up before any test asks for a Python. Workers use the folder of their parent process."""
    if _VARIABLE in os.environ:
        return
    folder = Path(tempfile.mkdtemp(prefix="nni-python-"))
    folder.chmod(0o755)  # tests act as other users, too
    _made.append(folder)
    _make(folder / "own", os.path.realpath(sys.executable))
    os.environ[_VARIABLE] = str(folder)
    os.environ["PATH"] = f"{_first(folder)}:{os.environ['PATH']}"


def remove() -> None:
    """Remove the interpreters that this process created."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


def _first(folder: Path) -> Path:
    """The folder of the `python3` that trials find."""
    found = subprocess.run(["python3", "-c", _WHERE], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if found == os.path.realpath(sys.executable):
        return folder / "own/bin"
    _make(folder / "other", found)
    return folder / "other/bin"


def _make(folder: Path, python: str) -> None:
    subprocess.run([python, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
