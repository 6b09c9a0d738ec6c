"""The `python3` of trials: that which the PATH has, without packages and without what a machine has around it.

A `python3` of a version manager is a shell script that looks for the real one, and a Python for everything reads at its
start what all its packages want: thousands of starts would each pay for that, several times what Python itself takes.
Without packages it also shows what a container shows, that what we send there needs none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: Where this run has its Pythons; workers inherit it.
_VARIABLE = "NNI_TESTS_BARE_PYTHON"
#: Of this process.
_made: list[Path] = []
_WHERE = "import os, sys; print(os.path.realpath(sys.executable))"


def own() -> str:
    """This Python without packages; outside of a run of tests, without those of its virtual environment."""
    folder = os.environ.get(_VARIABLE)
    return f"{folder}/own/bin/python3" if folder else os.path.realpath(sys.executable)


def make() -> None:
    """Before anything asks for a Python; workers have that of the process that started them."""
    if _VARIABLE in os.environ:
        return
    folder = Path(tempfile.mkdtemp(prefix="nni-python-"))
    folder.chmod(0o755)  # tests act as other users, too
    _made.append(folder)
    _make(folder / "own", os.path.realpath(sys.executable))
    os.environ[_VARIABLE] = str(folder)
    os.environ["PATH"] = f"{_first(folder)}:{os.environ['PATH']}"


def remove() -> None:
    """What this process made."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


def _first(folder: Path) -> Path:
    """The folder of that `python3` which trials would find."""
    found = subprocess.run(["python3", "-c", _WHERE], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if found == os.path.realpath(sys.executable):
        return folder / "own/bin"
    _make(folder / "other", found)
    return folder / "other/bin"


def _make(folder: Path, python: str) -> None:
    subprocess.run([python, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
